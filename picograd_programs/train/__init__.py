"""The trainings of `picograd train` and what they share: steps, figures, checkpoints."""
