"""Length models: distributions fitted to a column of lengths, or to published summary statistics."""
