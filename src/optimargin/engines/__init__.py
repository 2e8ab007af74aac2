"""Where the parts of a problem are kept and worked on: one file for each way."""
