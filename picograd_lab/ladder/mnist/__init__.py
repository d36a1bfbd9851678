"""`picograd ladder mnist`: one perceptron as many short programs, from PyTorch over plain C to fused kernels on a GPU.

programs/ has what a reader builds and runs, alone, with one command each. The rest runs them all and compares them:
rungs.py lists them and runs one, meaning.py says what each tensor of a step is, blame.py finds the first kernel that
deviates, faults.py plants a mistake, climb.py climbs, table.py and run.py are the tables and the command.
"""
