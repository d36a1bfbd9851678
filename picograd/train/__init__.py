"""What `picograd train` runs: a loop, checkpoints and a log, and a recipe for each model."""
