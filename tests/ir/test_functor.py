"""Walks and rewrites: order, identity, substitution, free variables, renewal."""

from __future__ import annotations

from typing import Any

import pytest
from how_many import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.ir import PrimFunc, ops, structural_equal
from tilewright.ir.buffer import BufferRegion, MatchBufferRegion, decl_buffer
from tilewright.ir.deep import deep_programs
from tilewright.ir.expr import (
    Add,
    BufferLoad,
    CommReducer,
    IntImm,
    IterVar,
    Let,
    Mul,
    Range,
    Reduce,
    SizeVar,
    Var,
    const,
    convert,
)
from tilewright.ir.functor import (
    Mutator,
    Visitor,
    buffers_accessed,
    ir_transform,
    post_order_visit,
    pre_order,
    pre_order_visit,
    renew_defs,
    renew_defs_in,
    rewrite,
    substitute,
    undefined_vars,
    uses_var,
    vars_used,
)
from tilewright.ir.specialize import specialize
from tilewright.ir.stmt import (
    Allocate,
    AttrStmt,
    Block,
    BlockRealize,
    BufferRealize,
    BufferStore,
    DeclBuffer,
    Evaluate,
    For,
    ForKind,
    IfThenElse,
    LetStmt,
    SeqStmt,
)

i, j, k = Var("i"), Var("j"), Var("k")
A = decl_buffer((16,), "int32", "A")


def names(nodes: Any) -> list[str]:
    return [v.name for v in nodes]


def is_same(a: Any, b: Any) -> bool:
    return structural_equal(a, b)


# -- order --------------------------------------------------------------------------------------
def test_orders() -> None:
    e = (i + j) * k
    assert [n.__class__.__name__ for n in pre_order(e)] == ["Mul", "Add", "Var", "Var", "Var"]
    seen: list[Any] = []
    post_order_visit(e, seen.append)
    assert [n.__class__.__name__ for n in seen] == ["Var", "Var", "Add", "Var", "Mul"]
    assert names(seen[:2]) == ["i", "j"]
    entered: list[Any] = []
    pre_order_visit(e, lambda n: entered.append(n) or n.__class__ is not Add)
    assert [n.__class__.__name__ for n in entered] == ["Mul", "Add", "Var"]


def test_functions_are_walked_by_their_body() -> None:
    func = PrimFunc([i], Evaluate(i + 1))
    seen: list[Any] = []
    post_order_visit(func, seen.append)
    assert seen[-1] is func.body
    seen.clear()
    pre_order_visit(func, seen.append)
    assert seen[0] is func.body


def test_walks_do_not_recurse() -> None:
    e: Any = i
    for _ in range(5000):
        e = Add(e, i)
    count = [0]
    post_order_visit(e, lambda n: count.__setitem__(0, count[0] + 1))
    assert count[0] == 5001, "each node once"
    assert sum(1 for _ in pre_order(e)) == 10001 and uses_var(e, i)
    with deep_programs():
        assert substitute(e, {i: j}).a.b is j


# -- dispatch -----------------------------------------------------------------------------------
def test_visitor_dispatch() -> None:
    class Collect(Visitor):
        def __init__(self) -> None:
            self.seen: list[str] = []

        def visit_Add(self, n: Add) -> None:
            self.seen.append("+")
            self.visit_children(n)

        def visit_Var(self, n: Var) -> None:
            self.seen.append(n.name)

    walk = Collect()
    walk.visit((i + j) * SizeVar("n") + 1)
    assert walk.seen == ["+", "+", "i", "j", "n"], "a SizeVar is a Var"


def test_handlers_are_inherited_and_overridden() -> None:
    class Base(Mutator):
        def visit_Var(self, n: Var) -> Any:
            return const(1)

    class Derived(Base):
        def visit_IntImm(self, n: IntImm) -> Any:
            return const(5)

    class SizesStay(Base):
        def visit_SizeVar(self, n: SizeVar) -> Any:
            return n

    class Mixin:
        def visit_Var(self, n: Var) -> Any:
            return const(9)

    class Mixed(Mixin, Base):
        pass

    n = SizeVar("n")
    assert is_same(Base().visit(Add(i, n)), Add(const(1), const(1)))
    assert is_same(Derived().visit(Add(i, const(2))), Add(const(1), const(5)))
    assert is_same(SizesStay().visit(Add(i, n)), Add(const(1), n))
    assert is_same(Mixed().visit(Add(i, n)), Add(const(9), const(9))), "as Python's own order has it"


def test_unchanged_comes_back_itself() -> None:
    class Nothing(Mutator):
        def visit_Mul(self, n: Mul) -> Any:
            return self.visit_children(n)

    func = PrimFunc([i], For(j, 0, 4, ForKind.SERIAL, BufferStore(A, i * j, [j])), None, {})
    assert Nothing().run(func) is func and Nothing().visit(func.body) is func.body
    assert rewrite(func, {Mul: lambda n: None}) is func
    assert ir_transform(func.body, None, lambda n: None) is func.body


# -- rewriting ----------------------------------------------------------------------------------
def test_rewrite_goes_from_the_inside_out() -> None:
    made = rewrite((i + 1) + 1, {Add: lambda n: Mul(n.a, const(2)) if n.b.value == 1 else None})
    assert is_same(made, Mul(Mul(i, const(2)), const(2)))
    func = PrimFunc([i], Evaluate(i + 1))
    made = rewrite(func, {Add: lambda n: n.a})
    assert made.body.value is i and made.params == func.params


def test_ir_transform() -> None:
    body = SeqStmt([Evaluate(i + 1), Evaluate(j + 1)])
    kept: list[str] = []

    def before(n: Any) -> Any:
        kept.append(n.__class__.__name__)
        return Evaluate(k) if n.__class__ is Evaluate and n.value.a is i else None

    made = ir_transform(
        body, before, lambda n: Mul(n.a, n.b) if n.__class__ is Add else None, ["tir.Evaluate", "tir.Add"]
    )
    assert is_same(made, SeqStmt([Evaluate(k), Evaluate(Mul(j, const(1)))]))
    assert kept == ["Evaluate", "Evaluate", "Add"], "what was replaced is not entered"


# -- substitution -------------------------------------------------------------------------------
def test_substitute() -> None:
    assert is_same(substitute(i + j, {i: k}), k + j) and substitute(i, {i: j}) is j
    e = i + j
    assert substitute(e, {k: i}) is e and substitute(e, {}) is e
    assert is_same(substitute(e, {i: j, j: i}), j + i), "all at once"
    assert is_same(substitute(e, lambda v: k if v is i else None), k + j)


def test_numbers_take_the_type_of_the_variable() -> None:
    wide = Var("w", "int64")
    assert substitute(wide, {wide: 3}).dtype == "int64"
    assert is_same(substitute(wide + 1, {wide: 3}), Add(const(3, "int64"), const(1, "int64")))
    assert is_same(substitute(wide + 1, lambda v: 3), Add(const(3, "int64"), const(1, "int64")))
    iv = IterVar((0, 4), "r", IterVar.CommReduce)
    assert is_same(substitute(iv.var + 1, {iv: i}), i + 1)
    assert is_same(substitute(i + 1, {i: iv}), iv.var + 1)


def test_substitute_reaches_buffers() -> None:
    n, m = Var("n"), Var("m")
    buffer = decl_buffer((n,), "int32", "B", elem_offset=n * 2)
    store = BufferStore(buffer, BufferLoad(buffer, [i]), [i])
    made = substitute(store, {n: m})
    assert made.buffer is made.value.buffer, "one buffer stays one"
    assert made.buffer.shape[0] is m and is_same(made.buffer.elem_offset, m * 2)
    asked = substitute(store, lambda v: m if v is n else None)
    assert asked.buffer.shape[0] is m
    pointer = Var("p", buffer.data.type_annotation)
    assert substitute(store, {buffer.data: pointer}).buffer.data is pointer
    other = decl_buffer((n,), "int32", "C")
    assert substitute(store, {}, {buffer: other}).buffer is other
    region = BufferRealize(buffer, (Range(0, n),), True, Evaluate(i))
    assert (
        substitute(region, {n: m}).bounds[0].extent is m and substitute(region, {n: m}).buffer.shape[0] is m
    )


def test_substitute_in_a_function_keeps_it_whole() -> None:
    n, p = Var("n"), Var("p", "handle")
    buffer = decl_buffer((n,), "int32", "B")
    func = PrimFunc([p, n], BufferStore(buffer, n, [0]), None, {p: buffer})
    made = substitute(func, {n: const(8)})
    assert made.body.buffer is made.buffer_map[p] and made.buffer_map[p].const_shape() == (8,)
    assert substitute(func, {i: j}) is func


def test_substitute_in_blocks() -> None:
    n = Var("n")
    vi = IterVar((0, n), "vi", IterVar.DataPar)
    inner = decl_buffer((n,), "int32", "T")
    region = BufferRegion(inner, (Range(0, n),))
    block = Block([vi], [region], [], "b", BufferStore(inner, vi.var, [vi.var]), alloc_buffers=[inner])
    made = substitute(BlockRealize([i], i < n, block), {n: const(4), i: j})
    assert made.iter_values[0] is j and made.block.iter_vars[0].dom.extent.value == 4
    assert made.block.alloc_buffers[0] is made.block.body.buffer is made.block.reads[0].buffer
    assert made.block.key is block.key


# -- questions ----------------------------------------------------------------------------------
def test_uses() -> None:
    assert uses_var(i + 1, i) and not uses_var(i + 1, j)
    assert uses_var(i + 1, lambda v: v.name == "i") and not uses_var(i + 1, lambda v: v.name == "z")
    store = BufferStore(A, i, [j])
    assert uses_var(store, A.data) and vars_used(store) == {i, j}
    assert list(buffers_accessed(SeqStmt([store, Evaluate(A[0])]))) == [A]


def test_undefined_vars() -> None:
    assert names(undefined_vars(i + j * i)) == ["i", "j"]
    assert names(undefined_vars(i + j, [i])) == ["j"]
    store = BufferStore(A, i, [j])
    assert names(undefined_vars(store)) == ["A", "i", "j"]
    loop = For(j, k, 4, ForKind.SERIAL, store)
    assert names(undefined_vars(loop)) == ["k", "A", "i"]
    assert names(undefined_vars(SeqStmt([loop, Evaluate(j)]))) == ["k", "A", "i", "j"], (
        "j is bound inside only"
    )
    assert names(undefined_vars(LetStmt(j, j + 1, Evaluate(j)))) == ["j"]
    assert names(undefined_vars(Let(j, i, j + k))) == ["i", "k"]


def test_undefined_vars_of_memory() -> None:
    inner = decl_buffer((k,), "int32", "T")
    store = BufferStore(inner, const(1), [0])
    assert names(undefined_vars(Allocate(inner.data, "int32", [k], i < 1, store))) == ["k", "i"]
    assert names(undefined_vars(BufferRealize(inner, (Range(0, j),), True, store))) == ["j", "k"]
    block = Block([], [], [], "b", Evaluate(const(1)), alloc_buffers=[inner])
    assert names(undefined_vars(block)) == ["k"], "the shape of what is allocated is used"
    view = decl_buffer((Var("s"),), "int32", "V")
    matched = MatchBufferRegion(view, BufferRegion(A, (Range(i, 4),)))
    block = Block([], [], [], "b", BufferStore(view, const(1), [0]), match_buffers=[matched])
    assert names(undefined_vars(block)) == ["A", "i"], "a matched buffer binds the symbols of its shape"


def test_undefined_vars_of_threads_and_reductions() -> None:
    t = IterVar(None, Var("t"), IterVar.ThreadIndex, "threadIdx.x")
    assert names(undefined_vars(AttrStmt(t, "thread_extent", i, Evaluate(t.var)))) == ["i"]
    assert names(undefined_vars(AttrStmt(t, "other", i, Evaluate(t.var)))) == ["i", "t"]
    x, y = Var("x"), Var("y")
    reducer = CommReducer([x], [y], [x + y], [const(0)])
    r = IterVar((0, k), "r", IterVar.CommReduce)
    assert names(undefined_vars(Reduce(reducer, [r.var + i], [r], True, 0))) == ["k", "i"]


def test_functions_define_their_parameters() -> None:
    n, p = Var("n"), Var("p", "handle")
    buffer = decl_buffer((n,), "int32", "B")
    func = PrimFunc([p], BufferStore(buffer, n + i, [0]), None, {p: buffer})
    assert undefined_vars(func) == [i]


# -- renewal ------------------------------------------------------------------------------------
def whole_function() -> PrimFunc:
    n, p = SizeVar("n"), Var("p", "handle")
    buffer = decl_buffer((n,), "int32", "B", offset_factor=1)
    inner, held = decl_buffer((4,), "int32", "T"), decl_buffer((n,), "int32", "H", scope="local")
    view = decl_buffer((Var("s"),), "int32", "V")
    vi, lv, t = IterVar((0, n), "vi", IterVar.DataPar), Var("l"), Var("t")
    block = Block(
        [vi],
        [BufferRegion(buffer, (Range.from_min_extent(vi.var, 1),))],
        [BufferRegion(inner, (Range(0, 4),))],
        "b",
        SeqStmt([BufferStore(inner, buffer[vi.var], [0]), BufferStore(view, view.shape[0], [0])]),
        init=BufferStore(inner, const(0), [0]),
        alloc_buffers=[inner],
        match_buffers=[MatchBufferRegion(view, BufferRegion(buffer, (Range(0, 4),)))],
    )
    thread = IterVar(None, "tx", IterVar.ThreadIndex, "threadIdx.x")
    launch = IterVar((0, 8), "bx", IterVar.ThreadIndex, "blockIdx.x")
    body: Any = For(lv, 0, n, ForKind.THREAD_BINDING, BlockRealize([lv], lv < n, block), thread)
    body = SeqStmt([body, LetStmt(t, n + 1, BufferStore(held, Let(j, t, j + 1), [launch.var]))])
    body = Allocate(held.data, "int32", [n], launch.var < n, DeclBuffer(held, body))
    body = AttrStmt(
        launch,
        "thread_extent",
        8,
        SeqStmt([body, AttrStmt(launch, "thread_extent", 8, Evaluate(launch.var))]),
    )
    return PrimFunc([p, n], body, None, {p: buffer}, {"a": 1})


def definitions(func: PrimFunc) -> set[Any]:
    """Every variable and buffer of a function (all of them are defined by it)."""
    found: set[Any] = set(func.params)
    for buffer in func.buffer_map.values():
        found |= {buffer, buffer.data, *(v for v in pre_order(buffer.elem_offset) if isinstance(v, Var))}
    for n in pre_order(func.body):
        if isinstance(n, Var):
            found.add(n)
        for field in ("buffer", "loop_var", "var", "buffer_var", "key"):
            value = getattr(n, field, None)
            if value is not None:
                found.add(value)
        if isinstance(n, For) and n.thread_binding is not None:
            found.add(n.thread_binding.var)
        if isinstance(n, AttrStmt):
            found.add(n.node.var)
        if isinstance(n, Block):
            found |= set(n.alloc_buffers)
    return found


def test_renew_shares_nothing_and_changes_nothing() -> None:
    func = whole_function()
    assert undefined_vars(func) == []
    made = renew_defs(func)
    assert structural_equal(func, made)
    assert undefined_vars(made) == [] and not definitions(func) & definitions(made)
    assert [p.__class__ for p in made.params] == [p.__class__ for p in func.params]
    assert made.attrs == {"a": 1}


def test_renew_in_a_statement_leaves_what_is_outside() -> None:
    loop = For(i, 0, k, ForKind.SERIAL, BufferStore(A, i + k, [i]))
    made = renew_defs_in(loop)
    assert made.loop_var is not i and made.extent is k and made.body.buffer is A
    assert made.body.indices[0] is made.loop_var


# -- specialization -----------------------------------------------------------------------------
def test_specialize() -> None:
    n, m, p, q = Var("n", "int64"), Var("m"), Var("p", "handle"), Var("q", "handle")
    a, b = decl_buffer((n, 4), "int32", "A"), decl_buffer((n,), "int32", "B")
    func = PrimFunc([p, q, m], BufferStore(b, a[0, 0] + m, [ops.cast("int64", m)]), None, {p: a, q: b})
    made = specialize(func, {m: 3})
    assert names(made.params) == ["p", "q"] and made.body.indices[0].value == 3
    made = func.specialize({p: decl_buffer((8, 4), "int32")})
    assert made.buffer_map[p].const_shape() == (8, 4) and made.buffer_map[q].const_shape() == (8,)
    assert made.buffer_map[q].shape[0].dtype == "int64", "the number takes the symbol's type"
    assert made.body.buffer is made.buffer_map[q]
    with pytest.raises(ValueError, match="i is not a parameter of the function"):
        specialize(func, {i: 1})
    with pytest.raises(TypeError, match="p is a buffer, so a buffer must be given, not 3"):
        specialize(func, {p: 3})
    with pytest.raises(ValueError, match="does not fit"):
        specialize(func, {p: decl_buffer((8, 4), "float32")})
    with pytest.raises(ValueError, match="`4` of A cannot become `5`"):
        specialize(func, {p: decl_buffer((8, 5), "int32")})
    with pytest.raises(ValueError, match="`n` of B cannot become `9`"):
        specialize(func, {p: decl_buffer((8, 4), "int32"), q: decl_buffer((9,), "int32")})


# -- properties ---------------------------------------------------------------------------------
leaves = st.one_of(st.sampled_from(["i", "j", "k"]), st.integers(-9, 9))
trees = st.recursive(leaves, lambda s: st.tuples(st.sampled_from("+-*"), s, s), max_leaves=12)
FUNCTIONS = {"+": ops.add, "-": ops.sub, "*": ops.mul}


def build(tree: Any, env: dict[str, Any]) -> Any:
    if isinstance(tree, tuple):
        return FUNCTIONS[tree[0]](build(tree[1], env), build(tree[2], env))
    return env[tree] if isinstance(tree, str) else const(tree)


def value(tree: Any, env: dict[str, int]) -> int:
    if isinstance(tree, tuple):
        a, b = value(tree[1], env), value(tree[2], env)
        return a + b if tree[0] == "+" else a - b if tree[0] == "-" else a * b
    return env[tree] if isinstance(tree, str) else tree


@given(tree=trees, numbers=st.tuples(*[st.integers(-9, 9)] * 3))
@settings(max_examples=examples(150), derandomize=True, deadline=None)
def test_substituting_numbers_gives_the_value(tree: Any, numbers: tuple[int, int, int]) -> None:
    env = {"i": i, "j": j, "k": k}
    given_values = dict(zip("ijk", numbers, strict=True))
    expected = value(tree, given_values)
    made = substitute(convert(build(tree, env)), {env[n]: given_values[n] for n in "ijk"})
    folded = rewrite(made, {cls: (lambda n, f=f: f(n.a, n.b)) for cls, f in ops.BINARY.items()})
    if abs(expected) < 1 << 31 and folded.__class__ is IntImm:
        assert folded.value == expected
    else:
        assert abs(expected) >= 1 << 20, "only what may overflow stays unfolded"


@given(tree=trees)
@settings(max_examples=examples(100), derandomize=True, deadline=None)
def test_free_variables_are_those_that_occur(tree: Any) -> None:
    e = convert(build(tree, {"i": i, "j": j, "k": k}))
    assert set(undefined_vars(e)) == vars_used(e) == {v for v in (i, j, k) if uses_var(e, v)}


def test_conditions_inside() -> None:
    body = IfThenElse(i < j, BufferStore(A, const(1), [i]))
    assert names(undefined_vars(body)) == ["i", "j", "A"]
