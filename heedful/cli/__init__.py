"""The command line: one file for each command, with its options and its function."""
