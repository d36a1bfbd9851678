"""`python -m picograd` is the command `picograd`.

In:    words of a command line
Out:   an exit status
"""

import sys

from picograd.cli import main

if __name__ == "__main__":
    sys.exit(main())
