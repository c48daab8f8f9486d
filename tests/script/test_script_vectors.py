"""Vectors in scripts: masked accesses, shuffles, and what loops are told about their lanes."""

from __future__ import annotations

from typing import Any

import pytest
from round_trip import check, checked_passes

import tilewright as tvm
from tilewright import te, tir
from tilewright.ir import PrimFunc, assert_structural_equal
from tilewright.ir.expr import BufferLoad, Let, Ramp, Shuffle, Var
from tilewright.ir.stmt import BufferStore, For, ForKind, LetStmt, Stmt, seq
from tilewright.script import from_source
from tilewright.script import tir as T


def function(body: Stmt, *buffers: Any, params: tuple[Var, ...] = ()) -> PrimFunc:
    handles = [tir.Var(b.name.lower(), "handle") for b in buffers]
    return PrimFunc([*handles, *params], body, buffer_map=dict(zip(handles, buffers, strict=True)))


def lanes(base: Any, count: int = 4, step: int = 1) -> Ramp:
    return Ramp(base, tir.const(step, "int32"), count)


A, B = (tir.decl_buffer((8, 32), "float32", name=x) for x in "AB")
i, j, n = (tir.Var(x, "int32") for x in "ijn")
below_n = lanes(j) < tir.Broadcast(n, 4)


# ---------------------------------------------------------------------------- masks
MASKED = {
    "a row": BufferStore(B, BufferLoad(A, [i, lanes(j)], below_n), [i, lanes(j)], below_n),
    "a stride": BufferStore(B, BufferLoad(A, [i, lanes(j, 4, 2)], below_n), [i, lanes(j, 4, 3)], below_n),
    "backwards": BufferStore(B, BufferLoad(A, [i, lanes(j, 4, -1)], below_n), [i, lanes(j)], below_n),
    "only the load": BufferStore(
        B, BufferLoad(A, [i, lanes(j)], below_n) * tir.const(2, "float32x4"), [i, lanes(j)]
    ),
    "only the store": BufferStore(B, tir.const(0, "float32x4"), [i, lanes(j)], below_n),
    "a mask of masks": BufferStore(
        B, BufferLoad(A, [i, lanes(j)], tir.And(below_n, lanes(i) >= tir.Broadcast(j, 4))), [i, lanes(j)]
    ),
    "places from memory": BufferStore(
        B,
        BufferLoad(A, [i, BufferLoad(A, [i, lanes(j)], below_n).astype("int32x4")], below_n),
        [i, lanes(j)],
        BufferLoad(A, [i, lanes(j)], below_n) > tir.const(0, "float32x4"),
    ),
}


@pytest.mark.parametrize("store", MASKED.values(), ids=MASKED)
def test_masks(store: Stmt) -> None:
    loops = For(i, 0, 8, ForKind.SERIAL, For(j, 0, 28, ForKind.SERIAL, store))
    check(function(loops, A, B, params=(n,)), "a test")


def test_a_mask_is_a_part_of_what_is_equal() -> None:
    def masked(mask: Any) -> PrimFunc:
        load = BufferLoad(A, [0, lanes(tir.const(0, "int32"))], mask)
        return function(BufferStore(B, load, [0, lanes(tir.const(0, "int32"))]), A, B, params=(n,))

    one, other = masked(lanes(tir.const(0, "int32")) < tir.Broadcast(n, 4)), masked(None)
    with pytest.raises(ValueError, match="StructuralEqual check failed"):
        assert_structural_equal(one, other)
    assert tvm.ir.structural_hash(one) != tvm.ir.structural_hash(other)


def test_masks_as_they_are_printed(expect: Any) -> None:
    @T.prim_func
    def copied(X: T.Buffer((32,), "float32"), Y: T.Buffer((32,), "float32"), size: T.int32):
        for k in range(8):
            mask: T.boolx4 = T.Ramp(k * 4, 1, 4) < T.Broadcast(size, 4)
            Y.vstore([T.Ramp(k * 4, 1, 4)], X.vload([T.Ramp(k * 4, 1, 4)], predicate=mask), predicate=mask)

    expect(
        copied,
        """
        @T.prim_func
        def copied(X: T.Buffer((32,), "float32"), Y: T.Buffer((32,), "float32"), size: T.int32):
            for k in range(8):
                mask: T.boolx4 = T.Ramp(k * 4, 1, 4) < T.Broadcast(size, 4)
                Y.vstore([T.Ramp(k * 4, 1, 4)], X.vload([T.Ramp(k * 4, 1, 4)], predicate=mask), predicate=mask)
        """,
    )
    check(copied, "a test")


# ---------------------------------------------------------------------------- shuffles
def test_shuffles_of_named_vectors() -> None:
    """The rounds of a transpose: vectors with names, each made of two before."""
    rows = [Var(f"row{k}", "float32x4") for k in range(4)]
    mixed = [
        Shuffle([rows[a], rows[b]], [tir.const(x, "int32") for x in (0, 4, 1, 5)])
        for a, b in ((0, 1), (2, 3))
    ]
    body: Stmt = seq(*(BufferStore(B, m, [k, lanes(tir.const(0, "int32"))]) for k, m in enumerate(mixed)))
    for k, row in reversed(list(enumerate(rows))):
        body = LetStmt(row, BufferLoad(A, [k, lanes(tir.const(0, "int32"))]), body)
    check(function(body, A, B), "a test")


def test_a_shuffle_with_a_name_inside() -> None:
    """`let v = A[…] in shuffle(v, v)` is an expression, whose name the script gives a line of its own."""
    v = Var("v", "float32x4")
    at = lanes(tir.const(0, "int32"))
    twice = Let(v, BufferLoad(A, [0, at]), Shuffle([v, v], [tir.const(x, "int32") for x in (0, 7, 1, 6)]))
    check(function(BufferStore(B, twice + twice, [0, at]), A, B), "a test")
    masked = BufferStore(B, twice, [0, at], Let(v, BufferLoad(A, [1, at]), v > tir.const(0, "float32x4")))
    check(function(masked, A, B), "a test")


# ---------------------------------------------------------------------------- what loops are told
@pytest.mark.parametrize(
    "told",
    [
        {"reduce_lanes": 1},
        {"transpose_lanes": 1},
        {"pragma_nontemporal": 1},
        {"prefetch_past_A": [1, 16]},
        {"a b": "c"},
    ],
    ids=lambda told: next(iter(told)),
)
@pytest.mark.parametrize("kind", ["serial", "vectorize", "parallel", "unroll"])
def test_annotations_of_loops(kind: str, told: dict[str, Any]) -> None:
    X = te.placeholder((8, 8), name="X")
    sch = tir.Schedule(te.create_prim_func([X, te.compute((8, 8), lambda a, b: X[b, a] * 2, name="Y")]))
    _, b = sch.get_loops("Y")
    for key, value in told.items():
        sch.annotate(b, key, value)
    if kind != "serial":
        getattr(sch, kind)(b)
    check(sch.mod, kind)


def test_lanes_on_their_way_down() -> None:
    """A tile that is transposed in registers, a reduction over lanes, streamed stores: after each pass."""
    X = te.placeholder((16, 16), name="X")
    Y = te.compute((16, 16), lambda a, b: X[b, a], name="Y")
    k = te.reduce_axis((0, 16), "k")
    Z = te.compute((16,), lambda a: te.sum(Y[a, k], axis=k), name="Z")
    sch = tir.Schedule(te.create_prim_func([X, Y, Z]))
    a, b = sch.get_loops("Y")
    (a_0, a_1), (b_0, b_1) = sch.split(a, [None, 4]), sch.split(b, [None, 4])
    sch.reorder(a_0, b_0, a_1, b_1)
    sch.annotate(a_1, "transpose_lanes", 1)
    sch.annotate(a_0, "pragma_nontemporal", 1)
    sch.vectorize(b_1)
    with checked_passes() as seen:
        tvm.lower(sch.mod)
    assert "tir.VectorizeLoop" in seen


def test_a_script_without_masks_reads_as_ever() -> None:
    text = '@T.prim_func\ndef f(A: T.Buffer((8,), "float32")):\n    A[0:4] = A.vload([T.Ramp(4, 1, 4)])\n'
    assert_structural_equal(
        from_source(text), from_source(text.replace("A.vload([T.Ramp(4, 1, 4)])", "A[4:8]"))
    )
