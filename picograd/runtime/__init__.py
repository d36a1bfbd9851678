"""The devices: memory, loading of Binaries, and what runs a plan: native code on a CPU, lists of launches on a GPU."""
