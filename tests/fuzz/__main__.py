"""`python -m fuzz`: see `runner.py`."""

from __future__ import annotations

import os
import sys

os.environ.setdefault("TILEWRIGHT_CACHE", "0")  # every attempt sees the compiler at work

from fuzz.runner import main

if __name__ == "__main__":
    sys.exit(main())
