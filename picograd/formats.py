"""Files of tensors: the package picograd_formats, by the functions that users know."""

from picograd_formats.state_file import load as load
from picograd_formats.state_file import save as save
