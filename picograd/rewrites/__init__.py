"""Graph to graph, between building and scheduling: what changes how something is computed and not what."""
