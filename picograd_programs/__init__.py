"""The command `picograd`: its trainings, their networks and data sets, and the cache."""

import picograd as picograd  # first: from there on Ctrl-C ends a command that is still being loaded
