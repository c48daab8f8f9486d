"""What blocks read and write; where buffers are used; which block a program is about."""

from __future__ import annotations

from tilewright.ir.buffer import BufferRegion, decl_buffer
from tilewright.ir.expr import IterVar, Range, Var, const
from tilewright.ir.function import PrimFunc
from tilewright.ir.functor import pre_order
from tilewright.ir.ops import call_extern, floordiv, floormod, if_then_else
from tilewright.ir.stmt import (
    Block,
    BlockRealize,
    BufferStore,
    Evaluate,
    For,
    ForKind,
    LetStmt,
    seq,
)
from tilewright.script import tir as T
from tilewright.tir import analysis


def _text(regions):
    return [f"{r.buffer.name}[{', '.join(f'{x.min}+{x.extent}' for x in r.region)}]" for r in regions]


def _loop(v, extent, body, low=0):
    return For(v, low, extent, ForKind.SERIAL, body)


vi, vj, k, j = Var("vi"), Var("vj"), Var("k"), Var("j")
A = decl_buffer((128, 128), "float32", "A")
B = decl_buffer((128,), "float32", "B")
C = decl_buffer((128,), "int32", "C")
ALL = {b.data: b for b in (A, B, C)}


def _block(body, init=None, iters=(vi,), **more):
    return Block([IterVar((0, 16), v, 0) for v in iters], [], [], "b", body, init, **more)


def _access(body, init=None, **more):
    return [_text(r) for r in analysis.get_block_access_region(_block(body, init, **more), ALL)]


def test_points_and_loops_inside():
    body = _loop(k, 8, BufferStore(B, A[vi + 2, k * 16 + vi], [vi]))
    assert _access(body) == [["A[vi + 2+1, vi+113]"], ["B[vi+1]"], []]


def test_a_reduction_does_not_read_what_it_accumulates():
    body = _loop(k, 8, BufferStore(B, B[vi] + A[vi, k], [vi]))
    init = BufferStore(B, 0.0, [vi])
    assert _access(body, init) == [["A[vi+1, 0+8]"], ["B[vi+1]"], []]
    assert _access(body) == [["B[vi+1]", "A[vi+1, 0+8]"], ["B[vi+1]"], []]


def test_several_accesses_are_one_box():
    body = seq(BufferStore(B, A[vi, 3] + A[vi, 9] + A[vi + 1, 5], [vi]))
    assert _access(body)[0] == ["A[vi+2, 3+7]"]


def test_gathers_and_bindings():
    x = Var("x")
    body = LetStmt(x, vi * 2, BufferStore(B, A[C[vi], x], [vi]))
    assert _access(body)[0] == ["A[C[vi]+1, vi * 2+1]", "C[vi+1]"]
    body = _loop(k, 4, BufferStore(B, A[C[k], 0], [k]))
    assert _access(body) == [["A[0+128, 0+1]", "C[0+4]"], ["B[0+4]"], []]


def test_what_lies_outside_is_not_read():
    body = _loop(k, 130, BufferStore(B, if_then_else(k < 128, B[k], 0.0), [vi]))
    assert _access(body)[0] == ["B[0+128]"]


def test_tiled_indices():
    body = _loop(k, 64, BufferStore(B, A[floordiv(k, 8), floormod(k, 8)], [vi * 8 + floordiv(k, 8)]))
    assert _access(body) == [["A[0+8, 0+8]"], ["B[vi * 8+8]"], []]


def test_loops_that_depend_on_loops():
    body = _loop(k, 4, _loop(j, k + 1, BufferStore(B, A[k, j + k], [vi])))
    assert _access(body)[0] == ["A[0+4, 0+7]"]


def test_buffers_of_the_block_itself_do_not_count():
    own = decl_buffer((16,), "float32", "own")
    body = seq(BufferStore(own, B[vi], [0]), BufferStore(B, own[0], [vi]))
    block = _block(body, alloc_buffers=[own])
    assert [_text(r) for r in analysis.get_block_access_region(block)] == [["B[vi+1]"], ["B[vi+1]"], []]


def test_inner_blocks_by_their_signature():
    wi = Var("wi")
    inner = Block(
        [IterVar((0, 16), wi, 0)],
        [_region(A, (wi, 1), (0, 128))],
        [_region(B, (wi, 1))],
        "inner",
        BufferStore(B, A[wi, 0], [wi]),
    )
    body = _loop(k, 4, BlockRealize([vi * 4 + k], True, inner))
    assert _access(body) == [["A[vi * 4+4, 0+128]"], ["B[vi * 4+4]"], []]


def _region(buffer, *ranges):
    return BufferRegion(buffer, tuple(Range.from_min_extent(a, b) for a, b in ranges))


def test_pointers_are_opaque_and_masked_pointers_are_not():
    body = Evaluate(call_extern("int32", "f", B.data))
    assert _access(body) == [[], [], ["B[0+128]"]]
    reads, writes = analysis.get_block_read_write_region(_block(body), ALL)
    assert _text(reads) == _text(writes) == ["B[0+128]"]
    body = Evaluate(call_extern("int32", "f", A.access_ptr("r"), B.access_ptr("w")))
    assert _access(body) == [["A[0+128, 0+128]"], ["B[0+128]"], []]


def test_the_regions_are_those_of_a_script():
    @T.prim_func
    def matmul(X: T.Buffer((32, 16)), Y: T.Buffer((16, 8)), Z: T.Buffer((32, 8))):
        for i, j, k in T.grid(32, 8, 16):
            with T.block("Z"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                T.reads(X[vi, vk], Y[vk, vj])
                T.writes(Z[vi, vj])
                with T.init():
                    Z[vi, vj] = T.float32(0)
                Z[vi, vj] = Z[vi, vj] + X[vi, vk] * Y[vk, vj]

    (block,) = [m for m in pre_order(matmul.body) if isinstance(m, Block) and m.iter_vars]
    reads, writes, _ = analysis.get_block_access_region(block)
    assert _text(reads) == _text(block.reads)
    assert _text(writes) == _text(block.writes)


# ---------------------------------------------------------------------------- places
@T.prim_func
def two_stages(X: T.Buffer((16, 16), "float32"), Z: T.Buffer((16, 16), "float32")):
    Y = T.alloc_buffer((16, 16), "float32")
    for i in range(16):
        for j in range(16):
            with T.block("Y"):
                vi, vj = T.axis.remap("SS", [i, j])
                Y[vi, vj] = X[vi, vj] * T.float32(2)
        for j, k in T.grid(16, 8):
            with T.block("Z"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                with T.init():
                    Z[vi, vj] = T.float32(0)
                Z[vi, vj] = Z[vi, vj] + Y[vi, vj] + T.float32(1)


def test_the_smallest_place_around_all_uses():
    found = {b.name: s for b, s in analysis.detect_buffer_access_lca(two_stages).items()}
    assert isinstance(found["Y"], For) and found["Y"].loop_var.name == "i"
    assert isinstance(found["X"], Block) and found["X"].name_hint == "Y"
    assert isinstance(found["Z"], Block) and found["Z"].name_hint == "Z"


def test_a_buffer_used_all_over_belongs_to_the_function():
    func = PrimFunc([B], seq(_loop(k, 4, BufferStore(B, 0.0, [k])), _loop(j, 4, BufferStore(B, 1.0, [j]))))
    assert analysis.detect_buffer_access_lca(func) == {B: None}


def test_the_anchor_is_the_reduction():
    anchor = analysis.find_anchor_block(two_stages)
    assert anchor is not None and anchor.name_hint == "Z"
    assert analysis.find_anchor_block(PrimFunc([B], BufferStore(B, const(0.0, "float32"), [0]))) is None
