"""Memory for temporaries: it is used again by the next call, and by other functions."""

from __future__ import annotations

import resource
import threading
from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright import te


def chain(n: int) -> Any:
    """Two stages with an array of n x 1024 between them, of which each row is used in another."""
    x = te.placeholder((n, 1024), name="x")
    b = te.compute((n, 1024), lambda i, j: x[i, j] + 1.0, name="b")
    c = te.compute((n, 1024), lambda i, j: b[n - 1 - i, j] * 2.0, name="c")
    s = te.create_schedule(c.op)
    s[b].parallel(b.op.axis[0])
    s[c].parallel(c.op.axis[0])
    return tvm.build(s, [x, c], "llvm")


def check(f: Any, n: int, seed: int = 0) -> None:
    x = np.random.default_rng(seed).standard_normal((n, 1024), dtype=np.float32)
    out = np.empty_like(x)
    f(x, out)
    np.testing.assert_array_equal(out, (x[::-1] + 1) * 2)


def faults() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def test_calls_after_the_first_get_no_fresh_pages() -> None:
    f, n = chain(4096), 4096
    x, out = np.ones((n, 1024), np.float32), np.ones((n, 1024), np.float32)
    f(x, out)
    before = faults()
    for _ in range(5):
        f(x, out)
    assert faults() - before < 500  # 16 MB are 4,096 pages


@pytest.mark.slow
@pytest.mark.parametrize("sizes", [(300, 100, 700, 1, 512, 300)])
def test_functions_share_blocks_of_many_sizes(sizes: tuple[int, ...]) -> None:
    made = {n: chain(n) for n in set(sizes)}
    for k, n in enumerate(sizes * 3):
        check(made[n], n, k)


@pytest.mark.slow
def test_threads_do_not_share_a_block() -> None:
    f, wrong = chain(200), []

    def work(seed: int) -> None:
        try:
            for k in range(20):
                check(f, 200, seed * 100 + k)
        except AssertionError as error:
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(s,)) for s in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong
