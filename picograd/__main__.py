"""`python -m picograd` is the command `picograd`.

In:    words of a command line
Out:   an exit status
"""

import sys

from picograd_programs.cli import main

if __name__ == "__main__":
    sys.exit(main())
