"""Control flow in graphs: Python functions traced into the bodies of LOOP and CALL."""
