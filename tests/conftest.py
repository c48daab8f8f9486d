"""Nodes are immutable at run time in the tests, and the repository's caches are left alone."""

import os

os.environ.setdefault("TILEWRIGHT_CHECK", "1")
