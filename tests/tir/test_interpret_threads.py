"""Kernels: threads, barriers, shared memory, shuffles and reductions across threads, and their reports."""

from __future__ import annotations

import numpy as np
import pytest
from how_many import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.ir import PrimFunc, decl_buffer
from tilewright.ir.dtype import DataType
from tilewright.ir.expr import CommReducer, IterVar, Ramp, StringImm, Var, const
from tilewright.ir.ops import call, floordiv
from tilewright.ir.stmt import (
    Allocate,
    AssertStmt,
    AttrStmt,
    BufferStore,
    Evaluate,
    For,
    ForKind,
    IfThenElse,
    LetStmt,
    seq,
)
from tilewright.ir.types import PointerType, PrimType
from tilewright.tir.interpret import InterpreterError, interpret
from tilewright.tir.interpret.memory import Memory
from tilewright.tir.interpret.threads import AccessLog, Clock, Stamp

RNG = np.random.default_rng(1)
BARRIER = Evaluate(call("int32", "tir.tvm_storage_sync", "shared"))
WARP_BARRIER = Evaluate(call("int32", "tir.tvm_storage_sync", "warp"))


class Kernel:
    """A kernel of `blocks` × `threads`, with buffers over shared and local memory."""

    def __init__(self, blocks: int, threads: int) -> None:
        self.bx, self.tx = Var("bx"), Var("tx")
        self.block = IterVar((0, blocks), self.bx, 1, "blockIdx.x")
        self.thread = IterVar((0, threads), self.tx, 1, "threadIdx.x")
        self.blocks, self.threads = blocks, threads
        self.allocations: list[tuple[Var, str, int]] = []

    def memory(self, name: str, size: int, scope: str, dtype: str = "int32") -> object:
        data = Var(name, PointerType(PrimType(dtype), scope))
        self.allocations.append((data, dtype, size))
        return decl_buffer((size,), dtype, name, data=data)

    def __call__(self, params: list, *body: object) -> PrimFunc:
        """The allocations stand between the two thread axes, where lowering puts them."""
        s = AttrStmt(self.thread, "thread_extent", const(self.threads), seq(*body))
        for data, dtype, size in self.allocations:
            s = Allocate(data, dtype, [size], True, s)
        return PrimFunc(params, AttrStmt(self.block, "thread_extent", const(self.blocks), s))


def report(func: PrimFunc, *args: object, **options: object) -> InterpreterError:
    with pytest.raises(InterpreterError) as caught:
        interpret(func, *args, **options)
    return caught.value


def tree_sum(barrier: bool, threads: int = 64) -> PrimFunc:
    """Each block sums its part of A through shared memory, halving the number of threads each round."""
    k = Kernel(2, threads)
    a, out = decl_buffer((2 * threads,), "int32", "A"), decl_buffer((2,), "int32", "out")
    s = k.memory("S", threads, "shared")
    steps: list[object] = [BufferStore(s, a[k.bx * threads + k.tx], [k.tx])]
    half = threads // 2
    while half:
        if barrier:
            steps.append(BARRIER)
        steps.append(IfThenElse(k.tx < half, BufferStore(s, s[k.tx] + s[k.tx + half], [k.tx])))
        half //= 2
    steps.append(IfThenElse(k.tx.equal(0), BufferStore(out, s[0], [k.bx])))
    return k([a, out], *steps)


def test_shared_memory_reduction():
    a, out = RNG.integers(0, 100, 128, "int32"), np.zeros(2, "int32")
    interpret(tree_sum(True), a, out)
    np.testing.assert_array_equal(out, a.reshape(2, 64).sum(1))


def test_shared_memory_reduction_without_barriers_is_a_race():
    func = tree_sum(False)
    a, out = np.ones(128, "int32"), np.zeros(2, "int32")
    assert str(report(func, a, out)) == (
        "race: two threads access S[1] (shared memory) with no barrier between\n"
        "  thread (blockIdx.x = 0, threadIdx.x = 0) reads it in: S[tx] = S[tx] + S[tx + 1]\n"
        "  thread (blockIdx.x = 0, threadIdx.x = 1) writes it in: S[tx] = A[bx * 64 + tx]\n"
        "  function: main"
    )


def test_shared_memory_that_no_thread_wrote():
    k = Kernel(1, 4)
    out = decl_buffer((4,), "int32", "out")
    s = k.memory("S", 4, "shared")
    write = IfThenElse(k.tx < 3, BufferStore(s, k.tx, [k.tx]))
    func = k([out], write, BARRIER, BufferStore(out, s[3 - k.tx], [k.tx]))
    assert str(report(func, np.zeros(4, "int32"))) == (
        "unwritten memory: read of S[3], which nothing wrote before\n"
        "  thread (blockIdx.x = 0, threadIdx.x = 0) reads it\n"
        "  statement: out[tx] = S[3 - tx]\n"
        "  function: main"
    )


def test_a_loop_needs_the_barrier_at_its_end_too():
    """Shared memory is the same in each round: the next round's writes race with this one's reads."""

    def rounds(*end: object) -> PrimFunc:
        k = Kernel(1, 4)
        out = decl_buffer((4,), "int32", "out")
        s = k.memory("S", 4, "shared")
        r = Var("r")
        body = seq(
            BufferStore(s, k.tx + r, [k.tx]),
            BARRIER,
            BufferStore(out, out[k.tx] + s[(k.tx + 1) % 4], [k.tx]),
            *end,
        )
        return k([out], For(r, 0, 3, ForKind.SERIAL, body))

    out = np.zeros(4, "int32")
    interpret(rounds(BARRIER), out)
    np.testing.assert_array_equal(out, [1 * 3 + 3, 2 * 3 + 3, 3 * 3 + 3, 3])
    error = report(rounds(), out)
    assert (error.kind, error.message) == (
        "race",
        "race: two threads access S[1] (shared memory) with no barrier between",
    )


def test_blocks_are_never_ordered():
    k = Kernel(2, 1)
    out = decl_buffer((1,), "int32", "out")
    error = report(k([out], BufferStore(out, k.bx, [0]), BARRIER), np.zeros(1, "int32"))
    assert error.message == "race: two threads access out[0] with no barrier between"
    assert error.notes == [
        "thread (blockIdx.x = 0, threadIdx.x = 0) writes it in: out[0] = bx",
        "thread (blockIdx.x = 1, threadIdx.x = 0) writes it in: out[0] = bx",
    ]
    k = Kernel(3, 2)
    a, out = decl_buffer((1,), "int32", "A"), decl_buffer((6,), "int32", "out")
    got = np.zeros(6, "int32")
    interpret(k([a, out], BufferStore(out, a[0] + k.bx, [k.bx * 2 + k.tx])), np.array([7], "int32"), got)
    np.testing.assert_array_equal(got, [7, 7, 8, 8, 9, 9])


def test_a_reader_of_an_earlier_block_races_with_a_writer_of_a_later_one():
    k = Kernel(2, 2)
    a, out = decl_buffer((2,), "int32", "A"), decl_buffer((4,), "int32", "out")
    at = k.bx * 2 + k.tx
    func = k([a, out], BufferStore(out, a[k.tx], [at]), IfThenElse(k.bx > 0, BufferStore(a, at, [k.tx])))
    error = report(func, np.zeros(2, "int32"), np.zeros(4, "int32"))
    assert error.notes == [
        "thread (blockIdx.x = 0, threadIdx.x = 0) reads it in: out[bx * 2 + tx] = A[tx]",
        "thread (blockIdx.x = 1, threadIdx.x = 0) writes it in: A[tx] = bx * 2 + tx",
    ]


def test_two_kernels_are_ordered():
    first, second = Kernel(2, 2), Kernel(1, 4)
    a, b = decl_buffer((4,), "int32", "A"), decl_buffer((4,), "int32", "B")
    fill = first([], BufferStore(a, first.bx * 10 + first.tx, [first.bx * 2 + first.tx])).body
    turn = second([], BufferStore(b, a[3 - second.tx], [second.tx])).body
    va, vb = np.zeros(4, "int32"), np.zeros(4, "int32")
    interpret(PrimFunc([a, b], seq(fill, turn)), va, vb)
    np.testing.assert_array_equal(vb, [11, 10, 1, 0])


def test_barrier_divergence():
    k = Kernel(1, 4)
    out = decl_buffer((4,), "int32", "out")
    func = k([out], IfThenElse(k.tx < 2, BARRIER), BufferStore(out, k.tx, [k.tx]))
    error = report(func, np.zeros(4, "int32"))
    assert error.kind == "barrier"
    assert str(error) == (
        "barrier divergence: not all threads of a block reach the same barrier\n"
        '  thread (blockIdx.x = 0, threadIdx.x = 0) waits at: T.tvm_storage_sync("shared")\n'
        "  thread (blockIdx.x = 0, threadIdx.x = 2) has ended\n"
        "  function: main"
    )
    other = Evaluate(call("int32", "tir.tvm_storage_sync", "shared.dyn"))
    func = k([out], IfThenElse(k.tx < 2, BARRIER, other))
    assert len(report(func, np.zeros(4, "int32")).notes) == 2


def test_local_memory_belongs_to_the_thread_and_shared_memory_to_the_block():
    k = Kernel(2, 3)
    out = decl_buffer((2, 3), "int32", "out")
    mine, ours = k.memory("mine", 1, "local"), k.memory("ours", 3, "shared")
    func = k(
        [out],
        BufferStore(mine, k.tx * 100 + k.bx, [0]),
        BufferStore(ours, mine[0], [k.tx]),
        BARRIER,
        BufferStore(out, mine[0] + ours[2 - k.tx], [k.bx, k.tx]),
    )
    got = np.zeros((2, 3), "int32")
    interpret(func, got)
    np.testing.assert_array_equal(got, [[200, 200, 200], [202, 202, 202]])


def test_thread_bound_loops_of_lowered_code_are_threads():
    a = decl_buffer((8,), "int32", "A")
    b, t = Var("b"), Var("t")

    def nest(body: object) -> PrimFunc:
        inner = For(t, 0, 4, ForKind.THREAD_BINDING, body, IterVar(None, Var("t"), 1, "threadIdx.x"))
        outer = For(b, 0, 2, ForKind.THREAD_BINDING, inner, IterVar(None, Var("b"), 1, "blockIdx.x"))
        return PrimFunc([a], outer)

    got = np.zeros(8, "int32")
    interpret(nest(BufferStore(a, b * 10 + t, [b * 4 + t])), got)
    np.testing.assert_array_equal(got, [0, 1, 2, 3, 10, 11, 12, 13])
    assert report(nest(BufferStore(a, b, [b])), got).kind == "race"


def test_three_axes_of_threads_and_symbolic_grids():
    n = Var("n")
    a = decl_buffer((n, 2, 3, 2), "int32", "A")
    bx, x, y, z = Var("bx"), Var("x"), Var("y"), Var("z")
    value = ((bx * 2 + z) * 3 + y) * 2 + x
    s = BufferStore(a, value, [bx, z, y, x])
    for v, extent, tag in ((x, 2, "threadIdx.x"), (y, 3, "threadIdx.y"), (z, 2, "threadIdx.z")):
        s = AttrStmt(IterVar((0, extent), v, 1, tag), "thread_extent", const(extent), s)
    s = AttrStmt(IterVar((0, n), bx, 1, "blockIdx.x"), "thread_extent", n, s)
    got = np.zeros((3, 2, 3, 2), "int32")
    interpret(PrimFunc([a], s), got)
    np.testing.assert_array_equal(got.ravel(), np.arange(36))


def test_two_extents_of_one_axis_are_refused():
    k = Kernel(1, 4)
    a = decl_buffer((8,), "int32", "A")
    other = IterVar((0, 8), Var("t2"), 1, "threadIdx.x")
    func = k([a], AttrStmt(other, "thread_extent", const(8), BufferStore(a, other.var, [other.var])))
    assert "thread axis threadIdx.x has the extents 4 and 8 in one kernel" in str(
        report(func, np.zeros(8, "int32"))
    )


# ---------------------------------------------------------------------------- virtual threads
@pytest.mark.parametrize("key", ["virtual_thread", "thread_extent"])
def test_virtual_threads_meet_the_barriers_of_their_thread(key):
    k = Kernel(1, 4)
    out = decl_buffer((2, 4), "int32", "out")
    total = k.memory("total", 2, "local")
    v = Var("vx")
    data = Var("S", PointerType(PrimType("int32"), "shared"))
    s = decl_buffer((4,), "int32", "S", data=data)
    inner = Allocate(
        data,
        "int32",
        [4],
        True,
        seq(
            BufferStore(s, k.tx + v * 10, [k.tx]),
            BARRIER,
            BufferStore(total, s[3 - k.tx], [v]),
            BufferStore(out, total[v], [v, k.tx]),
        ),
    )
    func = k([out], AttrStmt(IterVar((0, 2), v, 1, "vthread"), key, const(2), inner))
    got = np.zeros((2, 4), "int32")
    interpret(func, got)
    np.testing.assert_array_equal(got, [[3, 2, 1, 0], [13, 12, 11, 10]])


def test_virtual_threads_without_barriers_and_without_kernels():
    a = decl_buffer((6,), "int32", "A")
    v, i = Var("v"), Var("i")
    body = For(i, 0, 3, ForKind.SERIAL, BufferStore(a, v * 10 + i, [v * 3 + i]))
    func = PrimFunc([a], AttrStmt(IterVar((0, 2), v, 1, "cthread"), "virtual_thread", const(2), body))
    got = np.zeros(6, "int32")
    interpret(func, got)
    np.testing.assert_array_equal(got, [0, 1, 2, 10, 11, 12])


# ---------------------------------------------------------------------------- across threads
def test_atomic_additions_do_not_race():
    k = Kernel(2, 8)
    out = decl_buffer((2,), "int32", "out")

    def add(value: object) -> Evaluate:
        return Evaluate(call("int32", "tir.atomic_add", call("handle", "tir.address_of", out[1]), value))

    got = np.array([0, 5], "int32")
    interpret(k([out], add(k.tx)), got)
    assert got.tolist() == [0, 5 + 2 * 28]
    error = report(k([out], add(k.tx), IfThenElse(k.tx.equal(3), BufferStore(out, const(0), [1]))), got)
    assert error.message == "race: two threads access out[1] with no barrier between"


@pytest.mark.parametrize(
    ("op", "by", "want"),
    [
        ("tvm_warp_shuffle", 3, [3] * 4 + [7] * 4),
        ("tvm_warp_shuffle_down", 1, [1, 2, 3, 3, 5, 6, 7, 7]),
        ("tvm_warp_shuffle_up", 2, [0, 1, 0, 1, 4, 5, 4, 5]),
    ],
)
def test_warp_shuffles(op, by, want):
    k = Kernel(1, 8)
    out = decl_buffer((8,), "int32", "out")
    x = Var("x")
    value = call("int32", f"tir.{op}", const(-1), k.tx, by, 4, 32)
    got = np.zeros(8, "int32")
    interpret(k([out], LetStmt(x, k.tx, BufferStore(out, value * 1 + const(0), [x]))), got)
    np.testing.assert_array_equal(got, want)


def test_warp_barriers_order_a_warp_and_no_more():
    def neighbours(threads: int, by: int) -> PrimFunc:
        k = Kernel(1, threads)
        out = decl_buffer((threads,), "int32", "out")
        s = k.memory("S", threads, "shared")
        return k(
            [out],
            BufferStore(s, k.tx, [k.tx]),
            WARP_BARRIER,
            BufferStore(out, s[(k.tx + by) % threads], [k.tx]),
        )

    got = np.zeros(32, "int32")
    interpret(neighbours(32, 1), got)
    np.testing.assert_array_equal(got, np.roll(np.arange(32), -1))
    error = report(neighbours(64, 32), np.zeros(64, "int32"))
    assert error.message == "race: two threads access S[32] (shared memory) with no barrier between"


def test_reduction_across_threads():
    a, out = decl_buffer((4, 8), "float32", "A"), decl_buffer((4,), "float32", "out")
    tx, ty = Var("tx"), Var("ty")
    x, y = Var("x", "float32"), Var("y", "float32")
    reducer = CommReducer((x,), (y,), (x + y,), (const(0.0, "float32"),))
    data = Var("part", PointerType(PrimType("float32"), "local"))
    part = decl_buffer((1,), "float32", "part", data=data)
    reduce = Evaluate(
        call("handle", "tir.tvm_thread_allreduce", const(1, "uint32"), a[ty, tx], tx < 7, part[0], tx)
    )
    body = seq(
        AttrStmt(reducer, "reduce_scope", const(0, "handle"), reduce),
        IfThenElse(tx.equal(3), BufferStore(out, part[0], [ty])),
    )
    s = AttrStmt(IterVar((0, 8), tx, 1, "threadIdx.x"), "thread_extent", const(8), body)
    s = AttrStmt(IterVar((0, 4), ty, 1, "threadIdx.y"), "thread_extent", const(4), s)
    va, vo = RNG.random((4, 8), np.float32), np.zeros(4, np.float32)
    interpret(PrimFunc([a, out], Allocate(data, "float32", [1], True, s)), va, vo)
    want = np.zeros(4, np.float32)
    for n in range(7):
        want = want + va[:, n]
    np.testing.assert_array_equal(vo, want)


def test_vector_accesses_are_logged_lane_by_lane():
    k = Kernel(1, 2)
    out = decl_buffer((8,), "int32", "out")
    func = k([out], BufferStore(out, const(1, "int32x4"), [Ramp(k.tx * 4, 1, 4)]))
    got = np.zeros(8, "int32")
    interpret(func, got)
    assert got.tolist() == [1] * 8
    close = k([out], BufferStore(out, const(1, "int32x4"), [Ramp(k.tx * 3, 1, 4)]))
    assert report(close, got).message == "race: two threads access out[3] with no barrier between"


def test_asynchronous_copies_fill_shared_memory():
    k = Kernel(1, 4)
    a, out = decl_buffer((16,), "int32", "A"), decl_buffer((16,), "int32", "out")
    s = k.memory("S", 16, "shared")
    i = Var("i")
    copy = Evaluate(call("int32", "tir.ptx_cp_async", s.data, k.tx * 4, a.data, k.tx * 4, 16))
    wait = Evaluate(call("int32", "tir.ptx_wait_group", 0))
    back = For(i, 0, 4, ForKind.SERIAL, BufferStore(out, s[i * 4 + k.tx], [i * 4 + k.tx]))
    va, vo = RNG.integers(0, 100, 16, "int32"), np.zeros(16, "int32")
    interpret(k([a, out], copy, wait, BARRIER, back), va, vo)
    np.testing.assert_array_equal(vo, va)
    assert report(k([a, out], copy, back), va, vo).kind == "race"


def test_many_threads_reading_one_place_stay_cheap():
    """The log keeps few readers however many there are, and still finds the one write among them."""
    k = Kernel(1, 96)
    a, out = decl_buffer((1,), "int32", "A"), decl_buffer((96,), "int32", "out")
    func = k([a, out], BufferStore(out, a[0], [k.tx]), IfThenElse(k.tx > 94, BufferStore(a, k.tx, [0])))
    error = report(func, np.zeros(1, "int32"), np.zeros(96, "int32"))
    assert error.notes[1].startswith("thread (blockIdx.x = 0, threadIdx.x = 95) writes it")
    own = k([a, out], IfThenElse(k.tx > 94, seq(BufferStore(out, a[0], [k.tx]), BufferStore(a, k.tx, [0]))))
    interpret(own, np.zeros(1, "int32"), np.zeros(96, "int32"))


# ---------------------------------------------------------------------------- the log of accesses
def _ordered(a: Stamp, b: Stamp) -> bool:
    """Whether a barrier lies between two accesses, said without cleverness."""
    if a.block != b.block:
        return False
    return a.thread == b.thread or a.epoch != b.epoch or (a.warp == b.warp and a.warp_epoch != b.warp_epoch)


@settings(max_examples=examples(600), derandomize=True, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["read"] * 6 + ["write", "warp 0", "warp 1", "barrier", "block"]),
            st.integers(0, 5),
        ),
        max_size=25,
    )
)
def test_the_log_finds_the_first_race_and_no_other(events):
    """Six threads in two warps touch one cell; the log is compared with the whole history."""
    stamps = [Stamp(0, t, f"thread {t}", t // 3) for t in range(6)]
    clock = Clock([None])
    log = AccessLog(clock, Memory("A", DataType("int8"), (1,), np.zeros(1, np.uint8), 1))
    history: list[tuple[Stamp, bool]] = []
    for what, t in events:
        if what == "block":
            stamps = [Stamp(stamps[0].block + 1, s.thread, s.label, s.warp) for s in stamps]
        elif what == "barrier":
            stamps = [s.after(warp_only=False) for s in stamps]
        elif what.startswith("warp"):
            stamps = [s.after(warp_only=True) if s.warp == int(what[-1]) else s for s in stamps]
        else:
            now, write = stamps[t], what == "write"
            race = any((write or w) and not _ordered(s, now) for s, w in history)
            history.append((now, write))
            clock.stamp = now
            try:
                (log.write if write else log.read)(0, 0)
            except InterpreterError:
                assert race
                return
            assert not race


# ---------------------------------------------------------------------------- reads before the write
def _reversed_without_barrier(read: object) -> PrimFunc:
    """Thread 0 reads what thread 3 writes later; `read` makes a statement of the value that it finds."""
    k = Kernel(1, 4)
    out = decl_buffer((4,), "int32", "out")
    s = k.memory("S", 4, "shared")
    return k([out], BufferStore(s, k.tx + 1, [k.tx]), read(k, out, s, s[3 - k.tx]))  # type: ignore[operator]


READS = {
    "stored": lambda k, out, s, x: BufferStore(out, x, [k.tx]),
    "an index": lambda k, out, s, x: BufferStore(out, s[x - 1], [k.tx]),
    "a far index": lambda k, out, s, x: BufferStore(out, k.tx, [x * 1000 - 1000]),
    "a divisor": lambda k, out, s, x: BufferStore(out, floordiv(7, x), [k.tx]),
    "asserted": lambda k, out, s, x: AssertStmt(x > 0, StringImm("positive"), BufferStore(out, x, [k.tx])),
    "a condition around a barrier": lambda k, out, s, x: IfThenElse(x > 0, BARRIER),
    "an extent": lambda k, out, s, x: For(Var("i"), 0, x, ForKind.SERIAL, BufferStore(out, 1, [k.tx])),
    "added to": lambda k, out, s, x: Evaluate(
        call("int32", "tir.atomic_add", call("handle", "tir.address_of", x), 1)
    ),
}


@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_a_read_before_another_threads_write_is_a_race(read: object) -> None:
    """Whatever follows from the value that was not there, the report names the two threads."""
    error = report(_reversed_without_barrier(read), np.zeros(4, "int32"))
    assert error.kind == "race"
    assert error.message == "race: two threads access S[2] (shared memory) with no barrier between"
    does = "writes" if read is READS["added to"] else "reads"
    assert error.notes[0].startswith(f"thread (blockIdx.x = 0, threadIdx.x = 1) {does} it in: ")
    assert error.notes[1] == "thread (blockIdx.x = 0, threadIdx.x = 2) writes it in: S[tx] = tx + 1"


def test_what_follows_from_unwritten_memory_is_not_the_news() -> None:
    k = Kernel(1, 4)
    out = decl_buffer((4,), "int32", "out")
    s = k.memory("S", 4, "shared")
    func = k([out], BufferStore(out, floordiv(7, s[k.tx]), [k.tx]), BARRIER)
    error = report(func, np.zeros(4, "int32"))
    assert error.message == "unwritten memory: read of S[0], which nothing wrote before"


def test_a_block_that_reads_what_a_later_block_writes() -> None:
    k = Kernel(2, 2)
    out = decl_buffer((4,), "int32", "out")
    data = Var("G", PointerType(PrimType(DataType("int32")), "global"))
    g, at = decl_buffer((4,), "int32", "G", data=data), k.bx * 2 + k.tx

    def made(*body: object) -> PrimFunc:
        func = k([out], *body)
        return func.replace(body=Allocate(data, "int32", [const(4)], True, func.body))

    error = report(
        made(BufferStore(g, at, [at]), BARRIER, BufferStore(out, g[3 - at], [at])), np.zeros(4, "int32")
    )
    assert error.notes == [
        "thread (blockIdx.x = 0, threadIdx.x = 1) reads it in: out[bx * 2 + tx] = G[3 - (bx * 2 + tx)]",
        "thread (blockIdx.x = 1, threadIdx.x = 0) writes it in: G[bx * 2 + tx] = bx * 2 + tx",
    ]
    error = report(made(BufferStore(out, g[3 - at], [at])), np.zeros(4, "int32"))
    assert error.message == "unwritten memory: read of G[3], which nothing wrote before"
