"""Tensors: what one is (cell.py, core.py, tensor.py), and a file for each subject of what it can do."""
