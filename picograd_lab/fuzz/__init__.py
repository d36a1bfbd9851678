"""Random graphs and programs held against the evaluator: what finds the bugs that nobody thought to test for.

In:    a seed
Out:   nothing, or a small graph that fails, as a script
"""
