"""Many elements become one: sums, extremes, norms, statistics, counts, and the running values on the way."""
