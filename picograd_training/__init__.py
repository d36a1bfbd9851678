"""Tools of trainings around networks and optimizers: schedules, averages, weights computed from others, pruning."""
