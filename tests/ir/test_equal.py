"""Structural equality and hashing: what counts, what does not, and that both agree."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from how_many import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.ir import GlobalVar, IRModule, PrimFunc, ops, structural_equal, structural_hash
from tilewright.ir.buffer import Buffer, BufferRegion, MatchBufferRegion, decl_buffer
from tilewright.ir.equal import assert_structural_equal, first_mismatch
from tilewright.ir.expr import (
    Add,
    BufferLoad,
    Call,
    CommReducer,
    FloatImm,
    FloorDiv,
    IntImm,
    IterVar,
    Let,
    PrimExpr,
    Range,
    Reduce,
    SizeVar,
    StringImm,
    Var,
    const,
)
from tilewright.ir.functor import renew_defs
from tilewright.ir.stmt import (
    Allocate,
    AttrStmt,
    Block,
    BlockRealize,
    BufferStore,
    DeclBuffer,
    Evaluate,
    For,
    ForKind,
    IfThenElse,
    LetStmt,
    SeqStmt,
    While,
)

i, j = Var("i"), Var("j")


def agree(a: Any, b: Any, map_free_vars: bool = False) -> bool:
    """Equality both ways, with hashes that agree with it."""
    same = structural_equal(a, b, map_free_vars)
    assert structural_equal(b, a, map_free_vars) == same, "equality has no direction"
    if same:
        assert structural_hash(a, map_free_vars) == structural_hash(b, map_free_vars)
    return same


# -- expressions --------------------------------------------------------------------------------
def test_expressions() -> None:
    assert agree(i + 1, i + 1) and not agree(i + 1, i + 2) and not agree(i + 1, 1 + i)
    assert not agree(i + 1, j + 1) and agree(i + 1, j + 1, map_free_vars=True)
    assert not agree(i + j, i + i, map_free_vars=True) and not agree(i + i, i + j, map_free_vars=True)
    assert agree(i + j, j + i, map_free_vars=True)
    assert not agree(i, Var("i", "int64"), map_free_vars=True)
    assert agree(i, SizeVar("n"), map_free_vars=True)
    assert not agree(i + 1, i - 1) and not agree(i, const(1))


def test_constants() -> None:
    assert agree(const(1), const(1)) and not agree(const(1), const(1, "int64"))
    assert agree(FloatImm("float32", math.nan), FloatImm("float32", math.nan))
    assert not agree(const(0.0), const(-0.0)) and not agree(const(1.0), const(1.0, "float64"))
    assert agree(StringImm("a"), StringImm("a")) and not agree(StringImm("a"), StringImm("b"))
    assert agree(IntImm("int32", 3), 3), "in attributes a Python number says the same"


def test_calls_and_lets() -> None:
    x = Var("x", "float32")
    assert agree(ops.exp(x), ops.exp(x)) and not agree(ops.exp(x), ops.log(x))
    assert agree(Call("int32", GlobalVar("f"), [i]), Call("int32", GlobalVar("f"), [i]))
    assert not agree(Call("int32", GlobalVar("f"), [i]), Call("int32", GlobalVar("g"), [i]))
    a, b = Var("a"), Var("b")
    assert agree(Let(a, i, a + 1), Let(b, i, b + 1))
    assert not agree(Let(a, i, a + 1), Let(b, i, a + 1)), "a is free on the right"


def test_reductions() -> None:
    def total(axis_name: str, extent: int = 8) -> PrimExpr:
        a, b = Var("a", "float32"), Var("b", "float32")
        k = IterVar((0, extent), axis_name, IterVar.CommReduce)
        reducer = CommReducer([a], [b], [a + b], [const(0.0)])
        return Reduce(reducer, [ops.cast("float32", k.var * i)], [k], True, 0)

    assert agree(total("k"), total("r")) and not agree(total("k"), total("k", 9))


# -- statements ---------------------------------------------------------------------------------
A = decl_buffer((16, 16), "float32", "A")


def loop(name: str = "i", extent: int = 16, kind: ForKind = ForKind.SERIAL, **more: Any) -> For:
    v = Var(name)
    return For(v, 0, extent, kind, BufferStore(A, const(1.0), [v, 0]), **more)


def test_loops() -> None:
    assert agree(loop(), loop("x")) and not agree(loop(), loop(extent=8))
    assert not agree(loop(), loop(kind=ForKind.PARALLEL))
    assert not agree(loop(), loop(annotations={"a": 1}))
    assert agree(loop(annotations={"a": 1, "b": "t"}), loop(annotations={"b": "t", "a": const(1)}))
    assert not agree(loop(annotations={"a": 1}), loop(annotations={"a": 2}))
    thread = IterVar(None, "tx", IterVar.ThreadIndex, "threadIdx.x")
    other = IterVar((0, 16), "ty", IterVar.ThreadIndex, "threadIdx.x")
    kind = ForKind.THREAD_BINDING
    assert agree(loop(kind=kind, thread_binding=thread), loop(kind=kind, thread_binding=other))
    wrong = IterVar(None, "tx", IterVar.ThreadIndex, "threadIdx.y")
    assert not agree(loop(kind=kind, thread_binding=thread), loop(kind=kind, thread_binding=wrong))
    assert not agree(loop(kind=kind, thread_binding=thread), loop(kind=kind))


def test_an_inner_variable_is_not_an_outer_one() -> None:
    def nest(inner: bool) -> For:
        a, b = Var("a"), Var("b")
        body = BufferStore(A, const(1.0), [b if inner else a, 0])
        return For(a, 0, 4, ForKind.SERIAL, For(b, 0, 4, ForKind.SERIAL, body))

    assert agree(nest(True), nest(True)) and not agree(nest(True), nest(False))


def test_free_use_of_a_bound_name() -> None:
    bound = For(i, 0, 4, ForKind.SERIAL, BufferStore(A, const(1.0), [i, 0]))
    free = For(j, 0, 4, ForKind.SERIAL, BufferStore(A, const(1.0), [i, 0]))
    assert not agree(bound, free)


def test_other_statements() -> None:
    store = BufferStore(A, const(1.0), [i, j])
    assert agree(SeqStmt([store, store]), SeqStmt([store, store]))
    assert not agree(SeqStmt([store, store]), SeqStmt([store, store, store]))
    assert not agree(IfThenElse(i < j, store), IfThenElse(i < j, store, store))
    assert agree(While(i < j, store), While(i < j, store)) and not agree(While(i < j, store), store)
    a, b = Var("a"), Var("b")
    assert agree(LetStmt(a, i, Evaluate(a)), LetStmt(b, i, Evaluate(b)))
    assert not agree(LetStmt(a, i, Evaluate(a)), LetStmt(b, j, Evaluate(b)))
    assert agree(AttrStmt(None, "pragma", 1, store), AttrStmt(None, "pragma", 1, store))
    assert not agree(AttrStmt(None, "pragma", 1, store), AttrStmt(None, "other", 1, store))


def test_threads_in_attributes() -> None:
    def launch(tag: str, dom: Any) -> AttrStmt:
        iv = IterVar(dom, Var("t"), IterVar.ThreadIndex, tag)
        return AttrStmt(iv, "thread_extent", 8, BufferStore(A, const(1.0), [iv.var, 0]))

    assert agree(launch("threadIdx.x", None), launch("threadIdx.x", (0, 8)))
    assert not agree(launch("threadIdx.x", None), launch("threadIdx.y", None))


def test_allocations() -> None:
    def allocate(scope: str = "local", size: int = 4) -> Allocate:
        buffer = decl_buffer((size,), "float32", "T", scope=scope)
        body = DeclBuffer(buffer, BufferStore(buffer, const(1.0), [0]))
        return Allocate(buffer.data, "float32", [size], True, body)

    assert agree(allocate(), allocate()) and not agree(allocate(), allocate("shared"))
    assert not agree(allocate(), allocate(size=5))
    assert agree(
        Allocate(Var("p", "handle"), "int8", [4], True, Evaluate(1), None),
        Allocate(Var("p", "handle"), "int8", [4], True, Evaluate(1), {}),
    )


def test_two_buffers_are_not_one() -> None:
    a, b = decl_buffer((4,), name="a"), decl_buffer((4,), name="b")
    store = BufferStore(a, const(1.0), [0])
    assert not agree(store, BufferStore(b, const(1.0), [0]))
    assert agree(store, BufferStore(b, const(1.0), [0]), map_free_vars=True)
    both = SeqStmt([store, BufferStore(b, const(1.0), [0])])
    assert not agree(both, SeqStmt([store, store]), map_free_vars=True)


# -- blocks and functions -----------------------------------------------------------------------
def block(name: str = "C", extent: int = 8, key: object = None, **more: Any) -> Block:
    iv = IterVar((0, extent), "vi", IterVar.DataPar)
    inner = decl_buffer((4,), "float32", "T")
    # The pointer of an allocated buffer is defined by the block, too.
    body = SeqStmt(
        [
            BufferStore(inner, const(1.0), [0]),
            Evaluate(ops.call_extern("int32", "f", inner.data)),
            BufferStore(A, BufferLoad(inner, [0]), [iv.var, 0]),
        ]
    )
    writes = [BufferRegion.point(A, [iv.var, const(0)])]
    return Block([iv], [], writes, name, body, alloc_buffers=[inner], key=key, **more)


def test_blocks() -> None:
    assert agree(block(), block("D", key="named")), "names and keys take no part"
    assert not agree(block(), block(extent=9)) and not agree(block(), block(annotations={"x": 1}))
    assert not agree(block(), block(init=Evaluate(i)))
    assert agree(BlockRealize([i], True, block()), BlockRealize([i], True, block()))
    assert not agree(BlockRealize([i], True, block()), BlockRealize([j], True, block()))
    assert not agree(BlockRealize([i], True, block()), BlockRealize([i], i < 3, block()))


def test_matched_buffers() -> None:
    def matched(stride: bool) -> Block:
        s = Var("s")
        view = decl_buffer((4, 4), "float32", "V", strides=[s, 1] if stride else None)
        source = BufferRegion(A, (Range(0, 4), Range(0, 4)))
        body = SeqStmt([BufferStore(view, const(1.0), [0, 0]), Evaluate(ops.add(s, 1))]) if stride else None
        body = body or BufferStore(view, const(1.0), [0, 0])
        return Block([], [], [source], "b", body, match_buffers=[MatchBufferRegion(view, source)])

    assert agree(matched(True), matched(True)) and not agree(matched(True), matched(False))


def function(size: Any = None, dtype: str = "float32", **attrs: Any) -> PrimFunc:
    n = Var("n") if size is None else size
    a, b = decl_buffer((n, 4), dtype, "A"), decl_buffer((n,), dtype, "B")
    pa, pb, v = Var("a", "handle"), Var("b", "handle"), Var("i")
    body = For(v, 0, n, ForKind.SERIAL, BufferStore(b, a[v, 0], [v]))
    return PrimFunc([pa, pb], body, None, {pa: a, pb: b}, attrs)


def test_functions() -> None:
    assert agree(function(), function()) and agree(function(8), function(8))
    assert not agree(function(), function(8)) and not agree(function(8), function(9))
    assert not agree(function(), function(dtype="float16"))
    assert not agree(function(a=1), function(a=2)) and not agree(function(a=1), function())
    assert agree(function(a=[1, "x", {"k": 2.5}]), function(a=(1, "x", {"k": 2.5})))
    assert agree(function(a=np.arange(3)), function(a=np.arange(3)))
    assert not agree(function(a=np.arange(3)), function(a=np.arange(3.0)))
    assert agree(function(), renew_defs(function()))
    assert not agree(function(), function().replace(params=function().params[:1], buffer_map={}))


def test_functions_with_swapped_buffers_differ() -> None:
    one = function(4, "int8")
    pa, pb = one.params
    swapped = one.replace(params=(pb, pa))
    assert not agree(one, swapped)


def test_modules() -> None:
    one = IRModule({"f": function(), "g": function(8)})
    assert agree(one, IRModule({"g": function(8), "f": function()})), "the order does not count"
    assert not agree(one, IRModule({"f": function(), "h": function(8)}))
    assert not agree(one, IRModule({"f": function()}))
    assert not agree(one, one.with_attr("a", 1))


# -- mismatches ---------------------------------------------------------------------------------
def test_the_first_mismatch_is_located() -> None:
    found = first_mismatch(function(8), function(9))
    assert found is not None and found.path_text == "<root>.buffer_map['a'].shape[0].value"
    assert first_mismatch(function(), function()) is None
    deep = first_mismatch(
        PrimFunc([], SeqStmt([Evaluate(i), Evaluate(i + 1)])),
        PrimFunc([], SeqStmt([Evaluate(i), Evaluate(i + 2)])),
    )
    assert deep is not None and deep.path_text == "<root>.body.seq[1].value.b.value"


def test_assert_says_where() -> None:
    assert_structural_equal(function(), function())
    with pytest.raises(ValueError, match="StructuralEqual check failed") as caught:
        assert_structural_equal(function(), function(8))
    assert "caused by lhs at <root>" in str(caught.value) and "and rhs at" in str(caught.value)


def test_things_without_an_answer_are_compared_by_identity() -> None:
    class Odd:
        def __eq__(self, other: object) -> Any:
            return "perhaps"

        def __ne__(self, other: object) -> Any:
            return "perhaps"

        __hash__ = object.__hash__

    odd = Odd()
    assert agree(function(a=odd), function(a=odd)) and not structural_equal(
        function(a=odd), function(a=Odd())
    )


# -- properties ---------------------------------------------------------------------------------
BUILDERS: list[Callable[[Any, Any], Any]] = [ops.add, ops.sub, ops.mul, FloorDiv, ops.min_of, ops.max_of]
leaves = st.one_of(st.sampled_from(["i", "j", "k"]), st.integers(1, 9))
trees = st.recursive(leaves, lambda s: st.tuples(st.integers(0, 5), s, s), max_leaves=12)


def build(tree: Any, env: dict[str, Var]) -> Any:
    if isinstance(tree, tuple):
        return BUILDERS[tree[0]](build(tree[1], env), build(tree[2], env))
    return env[tree] if isinstance(tree, str) else const(tree)


@given(a=trees, b=trees)
@settings(max_examples=examples(150), derandomize=True, deadline=None)
def test_equal_trees_hash_alike(a: Any, b: Any) -> None:
    env = {name: Var(name) for name in "ijk"}
    other = {name: Var(name) for name in "ijk"}
    x, y = build(a, env), build(b, env)
    assert agree(x, build(a, env)) and agree(x, build(a, other), map_free_vars=True)
    if a == b:
        assert agree(x, y)
    else:
        agree(x, y)


@pytest.mark.slow
def test_deep_programs() -> None:
    def chain(v: Var) -> Any:
        out: Any = v
        for _ in range(3000):
            out = Add(out, v)
        return out

    assert agree(chain(i), chain(i)) and agree(chain(i), chain(j), map_free_vars=True)
    assert not agree(chain(i), chain(j))


def test_a_view_of_known_memory() -> None:
    """A buffer that is declared where it is used, over a pointer that both programs define."""

    def view(offset: int) -> PrimFunc:
        pointer = Var("p", "handle")
        seen = Buffer(pointer, "int32", (4,), (), const(offset), "V")
        return PrimFunc([pointer], BufferStore(seen, const(1), [0]))

    assert agree(view(0), view(0)) and not agree(view(0), view(4))
