"""The devices: their memory, loading of Binaries, and native code that runs plans."""
