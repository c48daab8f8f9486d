"""Random programs over rows whose stages live in shared memory, with random schedules for the threads of a block.

stage 0      S0[r, c] = A[r, c'] + …      c' is c, its neighbour, or its mirror image
stage 1      S1[r]    = max over c of S0[r, c]
…            each in shared memory, computed by the threads of a block together, row after row
"""

from __future__ import annotations

import random
from typing import Any

from tilewright import te, tir

WIDTH = 12


def rows(seed: int) -> tir.Schedule:
    """A schedule with rows for blocks of threads (some rows one after the other), and memory that threads share."""
    rng = random.Random(seed)
    n, m = rng.choice([2, 3, 4]), WIDTH
    A = te.placeholder((n, m), "int32", name="A")
    made = [A]
    for i in range(rng.randint(1, 4)):
        made.append(_stage(rng, made, f"S{i}", n, m))
    last = _wide(rng, made, "D", n, m)
    sch = tir.Schedule(te.create_prim_func([A, last]))
    _schedule(sch, rng, [t.op.name for t in made[1:]], n)
    return sch


def _place(rng: random.Random, c: Any, m: int) -> Any:
    """A column to read: this one, another, or the mirror image."""
    return rng.choice([c, (c + rng.randint(1, m - 1)) % m, m - 1 - c])


def _read(rng: random.Random, x: Any, r: Any, c: Any, m: int) -> Any:
    return x[r] if len(x.shape) == 1 else x[r, _place(rng, c, m)]


def _wide(rng: random.Random, made: list[Any], name: str, n: int, m: int) -> Any:
    x, y = made[-1], rng.choice(made)
    return te.compute((n, m), lambda r, c: _read(rng, x, r, c, m) * 2 - _read(rng, y, r, c, m), name=name)


def _stage(rng: random.Random, made: list[Any], name: str, n: int, m: int) -> Any:
    x = made[-1]
    if len(x.shape) == 2 and rng.random() < 0.4:
        k = te.reduce_axis((0, m), "k")
        least = rng.choice([te.max, te.sum])
        return te.compute((n,), lambda r: least(x[r, k], axis=k), name=name)
    return _wide(rng, made, name, n, m)


def _schedule(sch: tir.Schedule, rng: random.Random, stages: list[str], n: int) -> None:
    r = sch.get_loops("D")[0]
    blocks = rng.choice([1, n, n])
    outer, inner = sch.split(r, [blocks, None])
    sch.bind(outer, "blockIdx.x")
    threads, at = rng.choice([3, 4, 6]), inner
    for name in reversed(stages):
        if not sch.get_consumers(name):  # nobody reads it
            continue
        sch.set_scope(name, 0, rng.choice(["shared", "shared", "shared.dyn"]))
        at = outer if rng.random() < 0.2 else at  # what it reads must be there too
        sch.compute_at(name, at)
    for name in [*stages, "D"]:
        if sch.get_consumers(name) or name == "D":
            _shared_out(sch, rng, name, threads)


def _shared_out(sch: tir.Schedule, rng: random.Random, name: str, threads: int) -> None:
    """Share the innermost loop of a block out among threads; a reduction may go to one thread, or to all."""
    loop = sch.get_loops(name)[-1]
    many = rng.choice([threads, threads, rng.choice([3, 4, 6])])
    sch.bind(sch.split(loop, [None, many])[1], "threadIdx.x")
