"""Pictures of graphs: picograd_lab.drawing under the name that users know."""

from picograd_lab.drawing import Drawing as Drawing
from picograd_lab.drawing import draw as draw
