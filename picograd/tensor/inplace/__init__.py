"""Methods that end in _ and operators with =: the result is written where x is stored, so every view of x sees it.

Each calls the method without the _ and stores what it returns; only those that change the shape of x make it another view.
"""
