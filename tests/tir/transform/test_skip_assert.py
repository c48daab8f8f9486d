"""Programs without their assertions."""

from __future__ import annotations

from typing import Any

from tilewright.script import tir as T
from tilewright.tir.transform.skip_assert import skip_assert


@T.prim_func
def checked(A: T.Buffer((4,), "float32"), n: T.int32):
    assert n >= 0, "negative"
    for i in range(n):
        assert i < 4, "too many"
        A[i] = T.float32(0)


def test_what_they_hold_for_stays(expect: Any) -> None:
    expect(
        skip_assert(checked),
        """
        @T.prim_func
        def checked(A: T.Buffer((4,), "float32"), n: T.int32):
            for i in range(n):
                A[i] = T.float32(0)
        """,
    )


def test_a_program_without_assertions_is_the_same() -> None:
    @T.prim_func
    def plain(A: T.Buffer((4,), "float32")):
        A[0] = T.float32(0)

    assert skip_assert(plain) is plain
