"""Layers: modules that hold parameters, or only options, around a function of functions/."""
