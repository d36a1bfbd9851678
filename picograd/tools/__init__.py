"""Programs beside the framework: a viewer, a doctor, the fuzzer, and what writes tables of the source."""
