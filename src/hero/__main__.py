"""`python -m hero` is the `hero` command."""

import sys

from hero.cli import main

if __name__ == "__main__":
    sys.exit(main())
