"""Room for deep calls, of which several may be held at once."""

from __future__ import annotations

import sys

import pytest

from tilewright.ir.deep import deep_programs
from tilewright.ir.errors import NestingError
from tilewright.runtime.recursion import deep_calls


def test_who_leaves_first_does_not_take_the_room_of_others() -> None:
    before = sys.getrecursionlimit()
    first, second = deep_calls(50_000), deep_programs()
    first.__enter__()
    second.__enter__()
    assert sys.getrecursionlimit() == 200_000
    second.__exit__(None, None, None)
    assert sys.getrecursionlimit() == 50_000
    second = deep_programs()
    second.__enter__()
    first.__exit__(None, None, None)
    assert sys.getrecursionlimit() == 200_000
    second.__exit__(None, None, None)
    assert sys.getrecursionlimit() == before


def test_a_program_that_is_too_deep_is_an_error_that_says_so() -> None:
    before = sys.getrecursionlimit()
    with pytest.raises(NestingError, match="nests too deeply"), deep_programs():
        raise RecursionError
    assert sys.getrecursionlimit() == before
