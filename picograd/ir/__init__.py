"""The intermediate representation: one node type, its opcodes, shapes, patterns and the records between stages."""

from picograd.ir import shape as shape  # gives Op its rule for shapes: without it none can be made
