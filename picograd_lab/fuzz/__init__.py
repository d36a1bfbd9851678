"""Compares random graphs and programs with the evaluator, to find bugs without a test.

In:    a seed
Out:   nothing, or a small failing graph as a script
"""
