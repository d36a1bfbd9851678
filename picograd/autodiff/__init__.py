"""Derivatives, graph to graph: one table of rules, and reverse and forward mode derived from it."""
