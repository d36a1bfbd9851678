"""Tools for training around networks and optimizers: schedules, averages, reparametrized weights, pruning."""
