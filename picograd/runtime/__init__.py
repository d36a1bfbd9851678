"""The devices: memory, loading of Binaries, and what runs a plan: native code on a CPU, lists of launches on a GPU.

A device of several files has a room: cpu/, cuda/, cudasim/. Beside them stand those of one file, and what devices share.
"""
