"""Limits on which compiled code relies and which a call checks."""

from __future__ import annotations

# The largest symbolic size of type int32: so far below 2^31 that a loop over whole tiles may pass the end.
LARGEST_SIZE = (1 << 31) - (1 << 16)
