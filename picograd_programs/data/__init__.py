"""Data sets, found or fetched by name and checked by digest.

In:    PICOGRAD_DATA, the cache folder, the network
Out:   NumPy arrays and lists of strings
"""

from picograd_programs.data.mnist import Mnist, load_mnist
from picograd_programs.data.names import load_names
from picograd_programs.data.text import load_text
from picograd_programs.data.tokens import TokenFile

__all__ = ["Mnist", "TokenFile", "load_mnist", "load_names", "load_text"]
