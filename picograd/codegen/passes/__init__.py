"""What every nest goes through after its emitter: from trees to a proved Program in the linear form."""
