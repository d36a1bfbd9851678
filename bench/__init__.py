"""Compares picograd with its peers: speed, start-up, memory and results, side by side in one run.

In:    the frameworks that are installed
Out:   a table on the screen; raw samples as JSON; the tables of docs/performance.md
"""
