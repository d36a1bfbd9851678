"""Functions of each element: the number that stands at a place becomes another number, whatever stands beside it."""
