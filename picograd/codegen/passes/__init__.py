"""Passes over every nest after its emitter: from trees to a proved Program in the linear form."""
