"""What the commands of both backends share on a terminal: options, tables, progress, JSON and CSV."""
