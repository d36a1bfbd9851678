"""Modules: what holds parameters, or only options, around a function of functions/."""
