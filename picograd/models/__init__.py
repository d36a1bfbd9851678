"""Models: a file for each."""
