"""Tensors: the class (cell.py, core.py, tensor.py), and a file of functions for each subject."""
