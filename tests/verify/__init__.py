"""Tests of picograd_lab/verify: planted faults are found and named, and right programs raise no alarm."""
