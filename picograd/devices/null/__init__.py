"""A device that compiles for this processor and never runs."""
