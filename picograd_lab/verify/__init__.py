"""Isolate and conquer: every kernel of a program beside its meaning, and the name of the first that deviates.

Begin with `watch.py`, which says in which steps a plan is compared; `bounds.py` is the tolerance.
"""
