"""Common parts of passes: types of new expressions, rules by operator, and factories of passes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeGuard

from ...ir.module import GlobalVar, IRModule
from ...ir.op import CallEffectKind, Op
from ...ir.span import at_span
from ...ir.transform import ModulePass, Pass, PassContext, PassInfo, register_pass, snake
from ..adt import Match
from ..expr import Call, Constant, Expr, Function, If, Let, Tuple, TupleGetItem, Var, const, set_checked_type
from ..op.registry import RelayOp, get
from ..ty import FuncType, TensorType, TupleType, Type
from ..visitor import ExprMutator, flow_inputs
from .infer_type import infer_module, infer_type


# ---------------------------------------------------------------------------- questions
def name_of(expr: Any) -> str:
    """The name of the operator that a call applies; "" for anything else."""
    return expr.op.name if expr.__class__ is Call and isinstance(expr.op, Op) else ""


def is_call(expr: Any, *constructors: Any) -> TypeGuard[Call]:
    """Whether an expression is a call of one of these operators: `is_call(e, R.reshape, R.nn.dense)`."""
    return expr.__class__ is Call and any(expr.op is build.op for build in constructors)


def is_pure_op(op: Any) -> bool:
    """Whether a call of the operator may be removed, duplicated or evaluated at compile time."""
    return isinstance(op, RelayOp) and op.effect <= CallEffectKind.Pure


def is_kept_whole(fn: Any) -> bool:
    """Whether a function is opaque to passes: a fused group, or one for an external compiler."""
    return isinstance(fn, Function) and (
        bool(fn.attrs.get("Primitive")) or "Compiler" in fn.attrs or "Composite" in fn.attrs
    )


def type_of(expr: Any) -> Any:
    """The type of an expression whose operands have types, or were just built from such; walks no further."""
    known = expr._checked_type if isinstance(expr, Expr) else expr.checked_type
    if known is not None:
        return known
    stack = [expr]
    while stack:
        at = stack[-1]
        if at._checked_type is not None:
            stack.pop()
            continue
        waiting = [b for b in _typed_by(at) if isinstance(b, Expr) and b._checked_type is None]
        if waiting:
            stack.extend(waiting)
            continue
        set_checked_type(at, _type_now(at))
        stack.pop()
    return expr._checked_type


def _typed_by(at: Any) -> tuple[Any, ...]:
    """The expressions whose types determine that of an expression."""
    if at.__class__ is Let:
        return (at.body,)
    if at.__class__ is Match:
        return (at.data, *(c.rhs for c in at.clauses))
    return (at.true_branch, at.false_branch) if at.__class__ is If else flow_inputs(at)


def _type_now(at: Any) -> Type:
    if at.__class__ is Let:
        return at.body.checked_type
    if at.__class__ is If and at.true_branch.checked_type == at.false_branch.checked_type:
        return at.true_branch.checked_type
    if at.__class__ is Call and isinstance(at.op, RelayOp):
        return at.op.infer([a.checked_type for a in at.args], at.attrs)
    if at.__class__ is Tuple:
        return TupleType(tuple(f.checked_type for f in at.fields))
    if at.__class__ is TupleGetItem:
        return at.tuple_value.checked_type.fields[at.index]
    if (
        at.__class__ is Call
        and isinstance(at.op, (GlobalVar, Var))
        and isinstance(at.op.checked_type, FuncType)
        and not at.op.checked_type.type_params
    ):
        return at.op.checked_type.ret_type
    return infer_type(at).checked_type


def tensor_type(expr: Any) -> TensorType | None:
    """The type of an expression if it is a tensor."""
    found = type_of(expr)
    return found if isinstance(found, TensorType) else None


def shape_of(expr: Any) -> tuple[Any, ...]:
    """The sizes of a tensor, known or not."""
    return type_of(expr).shape


def ndim_of(expr: Any) -> int:
    return len(type_of(expr).shape)


def static_shape(expr: Any) -> tuple[int, ...] | None:
    """The sizes of a tensor if all of them are known."""
    found = tensor_type(expr)
    if found is None or any(not isinstance(d, int) for d in found.shape):
        return None
    return found.shape


def scalar_like(value: float, beside: Any) -> Constant:
    """A number of the element type of another expression."""
    return const(value, str(type_of(beside).dtype))


def call(name: str, *args: Any, **attrs: Any) -> Call:
    """A call of the operator of that name."""
    return get(name)(*args, **attrs)


# ---------------------------------------------------------------------------- walks
class Mutator(ExprMutator):
    """A mutator that does not enter fused groups and functions for external compilers."""

    def visit_function(self, fn: Function) -> Any:
        return fn if is_kept_whole(fn) else super().visit_function(fn)


Rule = Callable[[Call], Any]


def by_operator(rules: Mapping[Any, Any]) -> dict[Any, Any]:
    """A table keyed by constructors or names as one keyed by operators."""
    return {
        get(key) if isinstance(key, str) else getattr(key, "op", key): rule for key, rule in rules.items()
    }


class CallRewriter(Mutator):
    """A mutator by rules: `rule(call with new operands)` returns its replacement, or None.

    The rules are keyed by operators, or by their constructors: `CallRewriter({R.nn.batch_norm: _batch_norm})`; or a
    function returns the rule of an operator, by its traits.
    """

    def __init__(self, rules: Mapping[Any, Rule] | Callable[[Any], Rule | None]) -> None:
        super().__init__()
        self.rule_of = rules if callable(rules) else by_operator(rules).get

    def visit_call(self, call: Call) -> Any:
        new = super().visit_call(call)
        rule = self.rule_of(new.op) if new.__class__ is Call and isinstance(new.op, RelayOp) else None
        made = None if rule is None else rule(new)
        return new if made is None else made


# ---------------------------------------------------------------------------- passes
def typed_pass(
    function: Callable[..., Any],
    *,
    name: str,
    opt_level: int = 0,
    whole_module: bool = False,
    needs_types: bool = True,
) -> Callable[..., Pass]:
    """The public factory of a pass `Function -> Function` that sees types and whose result has them.

    Arguments of the factory go to the function after the first. With `whole_module` it is
    `IRModule -> IRModule`.
    """
    info = PassInfo(opt_level, name)

    def factory(*args: Any, **kwargs: Any) -> Pass:
        def one(func: Any) -> Any:
            if not isinstance(func, Function) or is_kept_whole(func):
                return func
            return function(func, *args, **kwargs)

        def work(mod: IRModule, ctx: PassContext) -> IRModule:
            typed = infer_module(mod) if needs_types else mod
            with at_span(None):
                if whole_module:
                    made: Any = function(typed, *args, **kwargs)
                else:
                    made = typed.map_functions(one)
            return infer_module(made)

        made = ModulePass(work, info)
        made.dump_name = snake(name)
        return made

    factory.__name__ = factory.__qualname__ = name.rsplit(".", 1)[-1]
    factory.__doc__, factory.__module__ = function.__doc__, function.__module__
    factory.__wrapped__ = function  # type: ignore[attr-defined]
    register_pass(name, factory)
    return factory


def let_chain(let: Any) -> tuple[list[Let], Any]:
    """The lets that follow one another, and the expression under the last."""
    chain: list[Let] = []
    while isinstance(let, Let):
        chain.append(let)
        let = let.body
    return chain, let


def rebuilt_lets(rows: Sequence[tuple[Let, Any]], body: Any) -> Any:
    """Lets with new values around a new body, each the same object where nothing changed."""
    for old, value in reversed(rows):
        body = old.updated(value=value, body=body)
    return body
