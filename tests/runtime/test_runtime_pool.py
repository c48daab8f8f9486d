"""The pool of the virtual machine: sizes of blocks, memory used again, what is given back."""

from __future__ import annotations

import ctypes

import pytest

from tilewright.runtime.pool import Pool, size_class


def test_sizes_of_blocks_hold_what_is_asked_and_little_more() -> None:
    sizes = [0, 1, 64, 65, 72, 73, 1000, 1024, 1025, 4097, 10**6, 2**31 - 1, 2**31, 2**40 + 1]
    for n in sizes:
        assert n <= size_class(n) <= max(64, n + n // 8 + 8)
        assert size_class(size_class(n)) == size_class(n)
    made = [size_class(n) for n in range(5000)]
    assert made == sorted(made) and len(set(made)) < 70


def test_a_block_is_used_again_after_its_last_reference() -> None:
    pool = Pool()
    a = pool.take(1000)
    b = pool.take(1000)
    assert a.address % 64 == b.address % 64 == 0 and abs(a.address - b.address) >= 1024
    ctypes.memset(a.address, 1, 1000)
    first = a.address
    also = a
    del a
    assert pool.take(1000).address != first
    del also
    assert pool.take(990).address in (first, b.address) or pool.report().blocks == 3
    report = pool.report()
    assert report.used == 1024 and report.total == report.used + report.free == report.blocks * 1024
    assert "free" in str(report)


def test_a_larger_block_serves_before_the_system_is_asked() -> None:
    pool = Pool()
    address = pool.take(1280).address
    assert pool.take(1100).address == address and pool.report().blocks == 1
    assert pool.take(100).address != address  # but not one that is much too large
    assert pool.report().blocks == 2


def test_what_is_free_is_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    from tilewright.runtime import pool as module

    pool = Pool()
    kept = pool.take(128)
    pool.take(5000)
    pool.trim()
    assert pool.report().total == pool.report().used == 128 and kept.address
    monkeypatch.setattr(module, "_KEPT", 10_000)
    for n in range(1, 60):  # sizes that never come again do not pile up
        pool.take(n * 1000)
    assert pool.report().total < 200_000
