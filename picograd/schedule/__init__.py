"""From a graph to a Schedule: what is computed together, in which order, and in which memory."""
