"""How many cases tests take: fewer in `make test-fast`, more on demand.

`TILEWRIGHT_EXAMPLES=5000 pytest tests/tir/schedule/test_random_schedules.py` takes more than usual.
"""

from __future__ import annotations

import os

# Set by conftest.py when the slow tests are left out.
fast = False


def examples(usual: int) -> int:
    """The number of random examples of a test whose usual number is this."""
    asked = os.environ.get("TILEWRIGHT_EXAMPLES")
    if asked:
        return max(1, int(asked))
    return -(-usual // 8) if fast else usual
