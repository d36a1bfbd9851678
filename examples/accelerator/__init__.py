"""A device that is no part of picograd: docs/accelerator.md walks through `loom.py`."""
