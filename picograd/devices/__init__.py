"""A folder for each device: what renders, compiles and runs its programs, and its target.

`backend.py` puts a device together, and is all that the engine asks for, by the device's name; nothing of a folder is
loaded before. The other files of a folder do not need to know each other: `render*.py` writes Programs as text,
`compile*.py` makes machine code of it, and the rest is memory, launches and plans. So it is with the files in this folder
itself, which devices share. docs/accelerator.md makes a device from outside the package.
"""
