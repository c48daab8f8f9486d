"""How many random examples tests take: all in `make test-all`, a third in `make test`, fewer in `make test-fast`.

`TILEWRIGHT_EXAMPLES=5000 pytest tests/tir/schedule/test_random_schedules.py` takes more than usual.
"""

from __future__ import annotations

import os

# One of so many is taken; conftest.py sets it.
share = 1


def examples(usual: int) -> int:
    """The number of random examples of a test whose usual number is this."""
    asked = os.environ.get("TILEWRIGHT_EXAMPLES")
    if asked:
        return max(1, int(asked))
    return -(-usual // share)
