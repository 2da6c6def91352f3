"""`python -m zephon_ft`: the same as `zephon-ft`."""

import sys

from zephon_ft.cli import main

if __name__ == "__main__":
    sys.exit(main())
