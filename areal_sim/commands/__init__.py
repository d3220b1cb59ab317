"""The verbs of `areal-sim`, one file each; everything heavy is imported inside the command."""
