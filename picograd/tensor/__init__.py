"""Tensors: here what one is, in the rooms beside it what it can do, a room for each kind of work."""
