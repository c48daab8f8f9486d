"""The space of register tiles and its cost: sane, within the registers, the same every time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from tilewright import te, tir
from tilewright.target import Target
from tilewright.tune.cost import cpu as cost
from tilewright.tune.program.facts import Facts, facts_of
from tilewright.tune.rules.cpu.tile import tile_table
from tilewright.tune.rules.cpu.tile_space import TileSpace, tile_spaces

MACHINE = Target("llvm -mcpu=skylake-avx512 -num-cores=4").cpu
NARROW = Target("llvm -mcpu=core2").cpu


def facts(tensors: list[Any], name: str) -> Facts:
    sch = tir.Schedule(te.create_prim_func(tensors))
    return facts_of(sch, sch.get_block(name))


def matmul(n: int, m: int, k: int, dtype: str = "float32", across: bool = False) -> Facts:
    A = te.placeholder((n, k), dtype, name="A")
    B = te.placeholder((m, k) if across else (k, m), dtype, name="B")
    r = te.reduce_axis((0, k), "k")
    body = lambda i, j: te.sum(A[i, r] * (B[j, r] if across else B[r, j]), axis=r)
    return facts([A, B, te.compute((n, m), body, name="C")], "C")


def evaluate(space: TileSpace, machine: Any, cores: int) -> dict[str, Any]:
    """The cost of all candidates of a space, for one core or for all, in cycles."""
    table = tile_table(space.facts, machine, [space])
    mine = table.column("threads") == (cores > 1)
    return {k: v[mine] for k, v in cost.evaluate(table, machine).items()}


@dataclass
class Best:
    space: TileSpace
    index: int
    figures: dict[str, float]
    candidates: int

    @property
    def tile(self) -> list[int]:
        return [int(t) for t in self.space.tiles[self.index]]


def best_tile(f: Facts, machine: Any, cores: int) -> Best | None:
    """The candidate with the least cost."""
    spaces = [s for s in tile_spaces(f, machine, frozenset()) if len(s.vectors)]
    found = []
    for space in spaces:
        costs = evaluate(space, machine, cores)
        i = int(np.argmin(costs["cycles"]))
        found.append(Best(space, i, {k: float(v[i]) for k, v in costs.items()}, len(costs["cycles"])))
    best = min(found, key=lambda b: b.figures["cycles"], default=None)
    if best is not None:
        best.candidates = sum(b.candidates for b in found)
    return best


def conv(channels: int, outs: int, size: int, kernel: int, stride: int = 1) -> Facts:
    x = te.placeholder((1, channels, size, size), name="x")
    w = te.placeholder((outs, channels, kernel, kernel), name="w")
    c, i, j = (te.reduce_axis((0, d), n) for d, n in ((channels, "c"), (kernel, "i"), (kernel, "j")))
    across = (size - kernel) // stride + 1
    body = lambda n, o, y, z: te.sum(x[n, c, y * stride + i, z * stride + j] * w[o, c, i, j], axis=[c, i, j])
    return facts([x, w, te.compute((1, outs, across, across), body, name="C")], "C")


# ---------------------------------------------------------------------------- what is known of a block
def test_accesses_are_linear_functions_of_the_axes() -> None:
    f = matmul(8, 16, 32)
    i, j, k = f.axes
    a, b = f.reads
    assert (a.stride(i), a.stride(j), a.stride(k)) == (32, 0, 1)
    assert (b.stride(i), b.stride(j), b.stride(k)) == (0, 1, 16)
    assert f.kind == "reduction" and f.points == 8 * 16 * 32 and [x.extent for x in f.spatial] == [8, 16]


def test_an_axis_walks_along_a_dimension_or_a_part_of_it() -> None:
    x, w = te.placeholder((8, 64), name="x"), te.placeholder((64, 8), name="w")
    k = te.reduce_axis((0, 8), "k")
    body = lambda size, step: lambda g, c: te.sum(x[k, g * size + c] * w[g * size + step * c, k], axis=k)
    whole, odd = (facts([x, w, te.compute((2, 24), body(n, 1), name="C")], "C") for n in (24, 31))
    _, c, _ = whole.axes
    assert [r.dimension(c) for r in whole.reads] == [1, 0]
    assert [r.dimension(odd.axes[1]) for r in odd.reads] == [
        None,
        None,
    ]  # parts that are not aligned to its size
    apart = facts([x, w, te.compute((2, 12), body(24, 2), name="C")], "C")
    assert [r.dimension(apart.axes[1]) for r in apart.reads] == [1, None]


def test_a_broadcast_takes_as_long_as_a_vector_where_loads_are_as_wide() -> None:
    """128 x 512 x 2048 reached 62% of the peak on Zen 5 with 26 rows of one vector, and reaches 90% with 13 of two."""
    machine, f = Target("llvm -mcpu=znver5 -num-cores=1").cpu, matmul(128, 2048, 512)
    (space,) = [s for s in tile_spaces(f, machine, frozenset({f.reads[1].buffer})) if s.pack_free]
    best = int(np.argmin(evaluate(space, machine, 1)["cycles"]))
    assert space.vectors[best] == 2
    assert Target("llvm -mcpu=znver4").cpu.fit.scalar_load == machine.fit.scalar_load / 2


def test_few_rows_are_read_at_once_from_memory() -> None:
    """A row times 4096 x 11008 weights in memory ran at 36 GB/s on Zen 5 with 13 rows at once, and runs at 42 with 3."""
    machine, f = Target("llvm -mcpu=znver5 -num-cores=1").cpu, matmul(1, 11008, 4096, across=True)
    (space,) = [s for s in tile_spaces(f, machine, frozenset()) if s.dot]
    best = int(np.argmin(evaluate(space, machine, 1)["cycles"]))
    assert 2 <= space.tiles[best].prod() <= 8
    (space,) = [s for s in tile_spaces(matmul(1, 64, 4096, across=True), machine, frozenset()) if s.dot]
    best = int(np.argmin(evaluate(space, machine, 1)["cycles"]))
    assert space.tiles[best].prod() > 8  # the weights are in the L2 cache


def test_windows_move_with_two_axes() -> None:
    f = conv(3, 8, 10, 3, stride=2)
    z, window = f.axes[3], f.axes[6]
    assert (f.reads[0].stride(z), f.reads[0].stride(window)) == (2, 1)


def test_an_index_that_is_read_moves_in_no_linear_way() -> None:
    x, at = te.placeholder((8,), name="x"), te.placeholder((4,), "int32", name="at")
    f = facts([x, at, te.compute((4,), lambda i: x[at[i]], name="y")], "y")
    assert {r.buffer.name: r.stride(f.axes[0]) for r in f.reads} == {"x": None, "at": 1}


# ---------------------------------------------------------------------------- the space
SHAPES = [(64, 64, 64), (1, 4096, 512), (197, 768, 96), (7, 13, 5), (512, 3, 100), (128, 1, 256)]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("across", [False, True])
def test_the_chosen_tile_is_within_the_registers(shape: tuple[int, int, int], across: bool) -> None:
    for machine in (MACHINE, NARROW):
        best = best_tile(matmul(*shape, across=across), machine, 1)
        assert best is not None
        assert best.figures["spills"] == 0
        assert best.figures["registers"] <= machine.vector_registers
        assert all(1 <= t <= a.extent for t, a in zip(best.tile, best.space.rows, strict=True))
        assert best.space.vectors[best.index] >= 1


def test_the_spaces_are_the_same_every_time() -> None:
    f = conv(16, 32, 14, 3)
    for one, two in zip(
        tile_spaces(f, MACHINE, frozenset()), tile_spaces(f, MACHINE, frozenset()), strict=True
    ):
        assert one.vector is two.vector and one.packed is two.packed
        for name in ("tiles", "vectors", "outer"):
            np.testing.assert_array_equal(getattr(one, name), getattr(two, name))


def test_candidates_are_many_and_none_is_there_twice() -> None:
    for space in tile_spaces(matmul(64, 64, 64), MACHINE, frozenset()):
        rows = np.column_stack([space.tiles, space.vectors, space.outer])
        assert len(np.unique(rows, axis=0)) == len(rows)
    assert best_tile(matmul(64, 64, 64), MACHINE, 1).candidates > 100  # type: ignore[union-attr]


def test_there_is_no_tile_where_no_axis_lies_in_line() -> None:
    x, at = te.placeholder((64, 8), name="x"), te.placeholder((64,), "int32", name="at")
    k = te.reduce_axis((0, 8), "k")
    f = facts([x, at, te.compute((64,), lambda i: te.sum(x[at[i], at[k]], axis=k), name="y")], "y")
    assert best_tile(f, MACHINE, 1) is None


# ---------------------------------------------------------------------------- the cost
def cycles(f: Facts, machine: Any = MACHINE, cores: int = 1) -> float:
    best = best_tile(f, machine, cores)
    assert best is not None
    return best.figures["cycles"]


@pytest.mark.parametrize(
    ("less", "more"),
    [
        ((64, 64, 64), (64, 64, 128)),
        ((64, 64, 64), (128, 64, 64)),
        ((64, 64, 64), (64, 128, 64)),
        ((256, 256, 256), (512, 512, 512)),
        ((1, 1024, 1024), (1, 4096, 4096)),
    ],
)
def test_more_work_costs_more(less: tuple[int, ...], more: tuple[int, ...]) -> None:
    assert cycles(matmul(*less)) < cycles(matmul(*more))


def test_wider_numbers_cost_more() -> None:
    assert cycles(matmul(128, 128, 128)) < cycles(matmul(128, 128, 128, "float64"))


def test_no_product_is_faster_than_the_units_that_compute_it() -> None:
    for shape in SHAPES:
        f = matmul(*shape)
        assert cycles(f) >= f.points / MACHINE.lanes(32) / MACHINE.fma_ports


def test_slow_memory_and_small_caches_cost_more() -> None:
    target = Target("llvm -mcpu=skylake-avx512 -num-cores=4")
    f = matmul(1, 4096, 4096)
    slow = target.with_machine({"memory_bandwidth": 1.0, "memory_bandwidth_all": 1.0}).cpu
    assert cycles(f) < cycles(f, slow)
    g = matmul(512, 512, 512)
    small = target.with_machine({"l1d": 1024, "l2": 4096, "l3": 8192}).cpu
    assert cycles(g) < cycles(g, small)


def test_threads_help_the_large_and_not_the_small() -> None:
    assert cycles(matmul(512, 512, 512), cores=4) < cycles(matmul(512, 512, 512))
    assert cycles(matmul(8, 16, 8), cores=4) > cycles(matmul(8, 16, 8))


def test_more_traffic_costs_more_for_every_candidate() -> None:
    """The same tiles of a product whose panels are longer move more bytes."""
    short, long = (tile_spaces(matmul(64, 64, k), MACHINE, frozenset())[1] for k in (64, 4096))
    np.testing.assert_array_equal(short.tiles, long.tiles)
    a, b = evaluate(short, MACHINE, 1), evaluate(long, MACHINE, 1)
    assert (a["traffic"] < b["traffic"]).all()
    assert (a["cycles"] < b["cycles"]).all()


def test_costs_are_finite_and_positive() -> None:
    for f in (conv(3, 64, 30, 7, 2), conv(64, 64, 9, 1), matmul(5, 7, 11), matmul(1, 1, 1000)):
        for space in tile_spaces(f, MACHINE, frozenset()):
            for name, value in evaluate(space, MACHINE, 2).items():
                assert np.isfinite(value).all(), name
                assert (value >= 0).all(), name
