"""The same functions in place: what `x += y`, `x.exp_()` and their like write where x is stored."""
