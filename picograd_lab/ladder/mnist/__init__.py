"""`picograd ladder mnist`: one perceptron as many short programs, from PyTorch over plain C to fused kernels on a GPU.

programs/ contains programs that a reader builds and runs alone, with one command each. The other files run and compare
them: rungs.py lists them and runs one, meaning.py defines each tensor of a step, blame.py finds the first kernel that
deviates, faults.py plants a mistake, climb.py climbs, table.py and run.py are the tables and the command.
"""
