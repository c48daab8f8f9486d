"""The kinds of expressions in a program."""

from __future__ import annotations

from enum import IntEnum
from typing import Any, Final

from ...ir.module import GlobalVar, IRModule
from ...ir.op import Op
from ..adt import Constructor, Match
from ..expr import (
    Call,
    Constant,
    Expr,
    Function,
    If,
    Let,
    RefCreate,
    RefRead,
    RefWrite,
    Tuple,
    TupleGetItem,
    Var,
)
from ..visitor import below
from .walks import free_vars, post_order, use_counts

__all__ = ["Feature", "check_basic_block_normal_form", "detect_feature"]


class Feature(IntEnum):
    """What a program may have in it. The names, and the numbers, are the classic ones."""

    fVar = 0
    fGlobalVar = 1
    fConstant = 2
    fTuple = 3
    fTupleGetItem = 4
    fFunction = 5
    fOp = 6
    fCall = 7
    fLet = 8
    fIf = 9
    fRefCreate = 10
    fRefRead = 11
    fRefWrite = 12
    fConstructor = 13
    fMatch = 14
    fGraph = 15  # an expression that is used twice
    fLetRec = 16  # a function that a let binds and that calls itself


_NODES = (
    *(Var, GlobalVar, Constant, Tuple, TupleGetItem, Function, Call, Let, If),
    *(RefCreate, RefRead, RefWrite, Constructor, Match),
)
_KINDS: Final = {node: Feature[f"f{node.__name__}"] for node in _NODES}


def detect_feature(a: Any, b: Any = None) -> set[Feature]:
    """The features of an expression, or of all functions of a module; a module may come first or second."""
    roots = [x for x in (a, b) if isinstance(x, Expr)]
    if not roots:
        modules = [x for x in (a, b) if isinstance(x, IRModule)]
        roots = [f for m in modules for f in m.functions.values() if isinstance(f, Expr)]
    return {f for root in roots for f in _features(root)}


def _features(root: Any) -> set[Feature]:
    out: set[Feature] = set()
    uses = use_counts(root)
    for at in post_order(root):
        out.add(Feature.fOp if isinstance(at, Op) else _KINDS[type(at)])
        if isinstance(at, Let) and isinstance(at.value, Function) and at.var in free_vars(at.value):
            out.add(Feature.fLetRec)
        # what has no parts is the same wherever it is written
        if (
            uses.get(at, 0) > 1
            and isinstance(at, Expr)
            and not isinstance(at, (Var, Constant, GlobalVar, Constructor))
        ):
            out.add(Feature.fGraph)
    return out


def check_basic_block_normal_form(expr: Any) -> bool:
    """Whether each expression that is used in several scopes is bound in a common enclosing scope.

    let %a = exp(%x); if (%c) { %a } else { tanh(%a) }       and not       if (%c) { exp(%x) } else { tanh(exp(%x)) }

    with one and the same `exp(%x)`. Scopes are the bodies of functions and the branches of `if`.
    """
    home: dict[Any, int] = {}
    scopes = 1
    stack: list[tuple[Any, int]] = [(expr, 0)]
    while stack:
        at, scope = stack.pop()
        if not isinstance(at, Expr) or isinstance(at, (Var, Constant, GlobalVar)):
            continue
        if at in home:
            if home[at] != scope:
                return False
            continue
        home[at] = scope
        for i, b in enumerate(below(at)):
            inner = isinstance(at, Function) or (isinstance(at, (If, Match)) and i > 0)
            stack.append((b, scopes if inner else scope))
            scopes += inner
    return True
