"""Structural equality and hash of graph expressions, without recursion.

Two expressions are equal if they have the same structure, up to the names of bound variables. Sharing must agree:
`a + a` is not `a + b` for two equal calls a and b.
"""

from __future__ import annotations

from typing import Any

from ..ir.equal import Comparer, Hasher, Path, register_graph
from ..ir.module import GlobalVar
from ..ir.op import Op
from .adt import Constructor, Match, PatternConstructor, PatternVar, pattern_vars
from .expr import Call, Constant, Expr, Function, If, Let, Tuple, TupleGetItem, Var
from .ty import TensorType, Type
from .visitor import below


def compare(comparer: Comparer, a: Expr, b: Any, path: Path) -> None:
    """Compare both expressions; calls the comparer's `fail` at the first difference."""
    c = comparer
    left: dict[Any, Any] = {}
    right: dict[Any, Any] = {}
    stack: list[tuple[Any, Any, Path]] = [(a, b, path)]
    while stack:
        x, y, at = stack.pop()
        if not isinstance(x, Expr):
            if isinstance(x, Op) and x is y:
                continue
            c.go(x, y, at)
            continue
        if isinstance(x, Var) and isinstance(y, Var):
            _same_var(c, x, y, at)
            continue
        if x in left or y in right:
            if left.get(x) is y and right.get(y) is x:
                continue
            if not (isinstance(x, (Constant, Constructor)) or (isinstance(x, Tuple) and not x.fields)):
                c.fail(at, x, y, "one is shared where the other is not")
        if x.__class__ is not y.__class__:
            c.fail(at, x, y, f"{type(x).__name__} against {type(y).__name__}")
        left[x], right[y] = y, x
        _same_node(c, x, y, at, stack)


def _same_node(c: Comparer, x: Any, y: Any, at: Path, stack: list[tuple[Any, Any, Path]]) -> None:
    """Compare the node's own fields, and push its children on the stack, the first on top."""
    if isinstance(x, Constant):
        p, q = x.numpy(), y.numpy()
        if x.data.dtype != y.data.dtype or p.shape != q.shape or p.tobytes() != q.tobytes():
            c.fail(at, x, y, "two different arrays")
    elif isinstance(x, Call):
        if len(x.args) != len(y.args):
            c.fail(at, x, y, f"{len(x.args)} arguments against {len(y.args)}")
        if (x.attrs or None) != (y.attrs or None):
            c.fail((at, ".attrs"), x, y, f"{x.attrs} against {y.attrs}")
        pairs = list(enumerate(zip(x.args, y.args, strict=True)))
        generic = (
            x.type_args and y.type_args and not isinstance(x.op, Op)
        )  # those of operators are the arguments'
        if generic and not _same_types(c, x.type_args, y.type_args):
            c.fail((at, ".type_args"), x, y, f"{x.type_args} against {y.type_args}")
        stack.extend((p, q, (at, f".args[{i}]")) for i, (p, q) in reversed(pairs))
        stack.append((x.op, y.op, (at, ".op")))
    elif isinstance(x, Tuple):
        if len(x.fields) != len(y.fields):
            c.fail(at, x, y, f"{len(x.fields)} fields against {len(y.fields)}")
        parts = list(enumerate(zip(x.fields, y.fields, strict=True)))
        stack.extend((p, q, (at, f".fields[{i}]")) for i, (p, q) in reversed(parts))
    elif isinstance(x, TupleGetItem):
        if x.index != y.index:
            c.fail((at, ".index"), x, y, f"part {x.index} against {y.index}")
        stack.append((x.tuple_value, y.tuple_value, (at, ".tuple_value")))
    elif isinstance(x, Let):
        _define(c, x.var, y.var, (at, ".var"))
        stack.append((x.body, y.body, (at, ".body")))
        stack.append((x.value, y.value, (at, ".value")))
    elif isinstance(x, If):
        for name in ("false_branch", "true_branch", "cond"):
            stack.append((getattr(x, name), getattr(y, name), (at, f".{name}")))
    elif isinstance(x, Function):
        _same_signature(c, x, y, at)
        stack.append((x.body, y.body, (at, ".body")))
    elif isinstance(x, Match):
        if len(x.clauses) != len(y.clauses) or x.complete != y.complete:
            c.fail(at, x, y, f"{len(x.clauses)} clauses against {len(y.clauses)}")
        clauses = list(enumerate(zip(x.clauses, y.clauses, strict=True)))
        for i, (left, right) in clauses:
            _same_pattern(c, left.lhs, right.lhs, (at, f".clauses[{i}].lhs"))
        stack.extend((a.rhs, b.rhs, (at, f".clauses[{i}].rhs")) for i, (a, b) in reversed(clauses))
        stack.append((x.data, y.data, (at, ".data")))
    elif isinstance(x, Constructor):
        _same_constructor(c, x, y, at)
    else:  # references
        pairs = list(enumerate(zip(x.children(), y.children(), strict=True)))
        stack.extend((p, q, (at, f"[{i}]")) for i, (p, q) in reversed(pairs))


def _same_types(c: Comparer, x: Any, y: Any) -> bool:
    return len(x) == len(y) and all(map(c.same_type, x, y))


def _same_signature(c: Comparer, x: Function, y: Function, at: Path) -> None:
    if len(x.params) != len(y.params):
        c.fail((at, ".params"), x, y, f"{len(x.params)} parameters against {len(y.params)}")
    if len(x.type_params) != len(y.type_params):
        c.fail((at, ".type_params"), x, y)
    for s, t in zip(x.type_params, y.type_params, strict=True):
        c.bind(s, t)
    for i, (v, w) in enumerate(zip(x.params, y.params, strict=True)):
        _define(c, v, w, (at, f".params[{i}]"), open_type=True)
    if x.ret_type is not None and y.ret_type is not None and not c.same_type(x.ret_type, y.ret_type):
        c.fail((at, ".ret_type"), x, y, f"{x.ret_type} against {y.ret_type}")
    c.go(x.attrs, y.attrs, (at, ".attrs"))


def _define(c: Comparer, x: Var, y: Var, at: Path, open_type: bool = False) -> None:
    """Let two variables correspond; with `open_type`, one without a type agrees with any."""
    p, q = x.type_annotation, y.type_annotation
    if p is not None or q is not None:  # a type that was inferred is as good as one that was written
        p, q = p or x._checked_type, q or y._checked_type
    if open_type and (p is None or q is None):
        p = q = None
    if (p is None) != (q is None) or (p is not None and not c.same_type(p, q)):
        c.fail((at, ".type_annotation"), x, y, f"{p} against {q}")
    if c.left.get(x, y) is not y or c.right.get(y, x) is not x:
        c.fail(at, x, y, "two different variables")
    c.bind(x, y)


def _same_var(c: Comparer, x: Var, y: Var, at: Path) -> None:
    known = c.left.get(x)
    if known is not None or y in c.right:
        if known is not y:
            c.fail(at, x, y, "two different variables")
    elif x is not y:
        if not c.map_free:
            c.fail(at, x, y, "two different free variables")
        _define(c, x, y, at, open_type=True)
    elif c.map_free:
        c.bind(x, y)


def _same_pattern(c: Comparer, x: Any, y: Any, at: Path) -> None:
    """Compare two patterns, and let the variables that they bind correspond."""
    if x.__class__ is not y.__class__:
        c.fail(at, x, y, f"{type(x).__name__} against {type(y).__name__}")
    if isinstance(x, PatternVar):
        _define(c, x.var, y.var, at)
    elif isinstance(x, PatternConstructor):
        _same_constructor(c, x.constructor, y.constructor, at)
    inner, other = getattr(x, "patterns", ()), getattr(y, "patterns", ())
    if len(inner) != len(other):
        c.fail(at, x, y, f"{len(inner)} patterns against {len(other)}")
    for i, (p, q) in enumerate(zip(inner, other, strict=True)):
        _same_pattern(c, p, q, (at, f".patterns[{i}]"))


def _same_constructor(c: Comparer, x: Constructor, y: Constructor, at: Path) -> None:
    if x is y:
        return
    names = x.name_hint == y.name_hint and x.belong_to.name_hint == y.belong_to.name_hint
    if not names or len(x.inputs) != len(y.inputs) or (x.tag < 0) != (y.tag < 0) or x.tag < 0:
        c.fail(at, x, y, f"constructor {x.name_hint} against {y.name_hint}")


# ---------------------------------------------------------------------------- hash
def hash_of(h: Hasher, root: Expr) -> int:
    """A number that agrees with equality: variables count by the order in which they are bound."""
    order: list[Any] = []
    seen: set[Any] = set()
    stack: list[tuple[Any, bool]] = [(root, False)]
    while stack:
        at, ready = stack.pop()
        if ready:
            order.append(at)
            continue
        if at in seen:
            continue
        seen.add(at)
        if isinstance(at, Function):
            for v in (*at.params, *at.type_params):
                h.number(v)
        elif isinstance(at, Let):
            h.number(at.var)
        elif isinstance(at, Match):
            for clause in at.clauses:
                for v in pattern_vars(clause.lhs):
                    h.number(v)
        elif isinstance(at, Var) and h.map_free:
            h.number(at)
        stack.append((at, True))
        stack.extend((b, False) for b in reversed(below(at)) if b not in seen)
    found: dict[Any, int] = {}
    shared = _shared(order)
    for at in order:
        found[at] = hash((_hash_node(h, at, found), shared.get(at)))
    return found[root]


def _shared(order: list[Any]) -> dict[Any, int]:
    """The expressions that are used twice, and their places: sharing is a part of the structure."""
    uses: dict[Any, int] = {}
    for at in order:
        for b in below(at):
            uses[b] = uses.get(b, 0) + 1
    plain = (Var, Constant, Constructor, GlobalVar, Op)
    return {
        at: i
        for i, at in enumerate(order)
        if uses.get(at, 0) > 1 and not isinstance(at, plain) and not (isinstance(at, Tuple) and not at.fields)
    }


def _hash_node(h: Hasher, at: Any, found: dict[Any, int]) -> int:
    if isinstance(at, Var):
        return hash(("var", h.seen[at])) if at in h.seen else hash(("free", id(at)))
    if isinstance(at, Constant):
        values = at.numpy()
        return hash(("const", values.shape, at.data.dtype, values.tobytes()))
    if isinstance(at, (Op, GlobalVar, Constructor)):
        return hash(at.name)
    parts = [found[b] for b in below(at)]
    own: Any = None
    if isinstance(at, Call):
        own = hash(at.attrs) if at.attrs else None
    elif isinstance(at, TupleGetItem):
        own = at.index
    elif isinstance(at, Let):
        own = _hash_type(at.var.type_annotation)
    elif isinstance(at, Function):
        own = (h.go(at.attrs), *(_hash_type(p.type_annotation) for p in at.params))
    return hash((type(at).__name__, own, *parts))


def _hash_type(kind: Type | None) -> int:
    if not isinstance(kind, TensorType):
        return 0 if kind is None else hash(type(kind).__name__)
    known = tuple(d if isinstance(d, int) else -1 for d in kind.shape)
    return hash((known, str(kind.dtype)))


register_graph(Expr, compare, hash_of)
