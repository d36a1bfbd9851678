"""The command `picograd`: its trainings, their networks and data sets, and the cache."""

import picograd as picograd  # first: Ctrl-C then ends a command even while it loads
