"""The laboratory: random programs against the evaluator, a ladder of matrix products, and a look at the machine."""
