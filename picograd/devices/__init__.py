"""A folder per device: its renderer, compiler, runtime, and target.

`backend.py` puts a device together; the engine loads only this file, by the device's name, on first use. The other files of
a folder do not need to know each other: `render*.py` writes Programs as text, `compile*.py` turns text into machine code,
and the rest is memory, launches and plans. Files directly in this folder are shared by devices, and named in the same way.
docs/accelerator.md adds a device from outside the package.
"""
