"""Elements at other places: views, pieces, joins, stacks, windows. Nothing is computed."""
