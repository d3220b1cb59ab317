"""The verbs of `areal-real`, one a file."""
