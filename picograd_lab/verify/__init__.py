"""Isolate and conquer: compares every kernel of a program with its meaning, and names the first that deviates.

Begin with `watch.py`, which lists the steps of a plan's comparison; `bounds.py` is the tolerance.
"""
