"""Tools for looking and checking: picograd_lab.drawing and picograd_lab.verify under the names that users know."""

from picograd_lab.drawing import Drawing as Drawing
from picograd_lab.drawing import draw as draw
from picograd_lab.verify.function import verify as verify
