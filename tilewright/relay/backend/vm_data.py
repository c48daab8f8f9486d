"""Data in the virtual machine: constructors as functions, and patterns as forms of values.

Cons(%x, Nil)      ->      [tag of Cons, any, [tag of Nil]]
"""

from __future__ import annotations

from typing import Any

from ..adt import Constructor, PatternConstructor, PatternTuple
from ..expr import Call, Function, Var, set_checked_type


def constructor_function(constructor: Constructor) -> Function:
    """A constructor as a value: the function that applies it."""
    kind = constructor.checked_type
    params = [Var(f"x{i}", t) for i, t in enumerate(kind.arg_types)]
    body = Call(constructor, params)
    set_checked_type(body, kind.ret_type)
    fn = Function(params, body, kind.ret_type, kind.type_params)
    set_checked_type(fn, kind)
    return fn


def form_of(pattern: Any) -> Any:
    """The form that a pattern asks for; None for any."""
    inner = [form_of(p) for p in getattr(pattern, "patterns", ())]
    if isinstance(pattern, PatternConstructor):
        return [pattern.constructor.tag, *inner]
    return ["t", *inner] if isinstance(pattern, PatternTuple) and any(f is not None for f in inner) else None
