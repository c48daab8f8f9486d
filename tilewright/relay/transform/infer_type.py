"""InferType: the type of every expression, inferred from its operands."""

from __future__ import annotations

from typing import Any, Final

from ...ir.errors import DiagnosticError
from ...ir.module import GlobalVar, IRModule
from ...ir.transform import ModulePass, Pass, PassInfo, register_pass
from ..expr import (
    Call,
    Constant,
    Expr,
    Function,
    If,
    Let,
    Tuple,
    TupleGetItem,
    Var,
    set_checked_type,
)
from ..op.registry import RelayOp, RelayTypeError
from ..op.shapes import same_size
from ..ty import Any as AnySize
from ..ty import FuncType, TensorType, TupleType, Type, TypeVar

_VISIT: Final = 0
_FINISH: Final = 1
_BIND: Final = 2


def infer_module(mod: IRModule) -> IRModule:
    """The module with the type of every expression of its graph functions known.

        fn (%x: Tensor[(2, 3), float32]) {      fn (%x: Tensor[(2, 3), float32]) -> Tensor[(2, 3), float32] {
          nn.relu(%x)                       ->    nn.relu(%x) /* ty=Tensor[(2, 3), float32] */
        }                                       }

    Types are stored in the nodes. A node without a type is annotated; one whose type has changed, because an operand
    changed, is rebuilt.
    """
    work = _Module(mod)
    new = {gv: work.function(gv) if isinstance(f, Function) else f for gv, f in mod.functions.items()}
    if all(new[gv] is f for gv, f in mod.functions.items()):
        return mod
    return IRModule(new, mod.type_definitions, mod.attrs)


def infer_type(expr: Any, mod: IRModule | None = None) -> Any:
    """The expression with its types known; variables that are free in it must be annotated."""
    return _Infer(_Module(mod or IRModule())).run(expr)


def InferTypeLocal(expr: Any, mod: IRModule | None = None) -> Any:
    """The type of an expression under construction.

    Existing types are trusted, so that calls at each step of a long graph cost no more than one pass.
    """
    if expr._checked_type is None:
        return _Infer(_Module(mod or IRModule()), believe=True).run(expr).checked_type
    return expr._checked_type


class _Module:
    """The functions of a module, typed when they are first needed."""

    def __init__(self, mod: IRModule) -> None:
        self.mod = mod
        self.done: dict[GlobalVar, Function] = {}
        self.busy: list[GlobalVar] = []

    def function(self, gv: GlobalVar) -> Function:
        found = self.done.get(gv)
        if found is None:
            self.busy.append(gv)
            found = self.done[gv] = _Infer(self).run(self.mod[gv])
            self.busy.pop()
            gv.checked_type = found.checked_type
        return found

    def type_of(self, gv: GlobalVar) -> Any:
        if gv not in self.mod.functions:
            raise RelayTypeError(f"the module has no function {gv}")
        f = self.mod.functions[gv]
        if not isinstance(f, Function):
            return gv.checked_type
        params = [p._checked_type for p in f.params]
        if f.ret_type is not None and all(p is not None for p in params):
            return FuncType(tuple(p for p in params if p is not None), f.ret_type, f.type_params)
        if gv in self.busy:
            names = " -> ".join(g.name_hint for g in [*self.busy, gv])
            raise RelayTypeError(f"{gv} calls itself ({names}) and needs a declared return type: ret_type=…")
        return self.function(gv).checked_type


class _Infer:
    """One walk over an expression, without recursion. `done` has for each node its typed one."""

    def __init__(self, module: _Module, believe: bool = False) -> None:
        self.module, self.believe = module, believe
        self.done: dict[Any, Any] = {}

    def run(self, root: Any) -> Any:
        done = self.done
        stack: list[tuple[int, Any]] = [(_VISIT, root)]
        while stack:
            action, at = stack.pop()
            if action == _FINISH:
                done[at] = self.finish(at)
            elif action == _BIND:
                self.bind(at.var, self.kind_of(done[at.value]))
            elif at not in done:
                self.visit(at, stack)
        return done[root]

    def visit(self, at: Any, stack: list[tuple[int, Any]]) -> None:
        cls: Any = at.__class__
        if cls is Var:
            if at._checked_type is None:
                raise RelayTypeError(
                    f"variable %{at.name_hint} has no type: it is neither bound nor annotated"
                )
            self.done[at] = at
        elif issubclass(cls, RelayOp):  # operators of calls are not children
            raise RelayTypeError(f"the operator {at.name} is used as a value; an operator can only be called")
        elif cls is Constant or not issubclass(cls, Expr) or (self.believe and at._checked_type is not None):
            self.done[at] = at
        elif cls is Let:
            if at.var.type_annotation is not None:
                self.done[at.var] = at.var  # for recursive functions
            stack += [(_FINISH, at), (_VISIT, at.body), (_BIND, at), (_VISIT, at.value)]
        else:
            if cls is Function:
                for p in at.params:
                    if p._checked_type is None:
                        raise RelayTypeError(f"parameter %{p.name_hint} of a function has no type")
                    self.done[p] = p
            stack.append((_FINISH, at))
            done = self.done
            for b in reversed(at.children()):
                if b not in done:
                    stack.append((_VISIT, b))

    def kind_of(self, value: Any) -> Any:
        """The type of a value, which may be a function of the module by its name."""
        return self.module.type_of(value) if isinstance(value, GlobalVar) else value._checked_type

    def bind(self, var: Var, kind: Type | None) -> None:
        """A let-bound variable has the type of its value."""
        if var.type_annotation is not None:
            if kind is not None and not fits(var.type_annotation, kind):
                raise RelayTypeError(
                    f"%{var.name_hint} is annotated {var.type_annotation} and its value is {kind}"
                )
            self.done[var] = var
        elif var._checked_type is None or var._checked_type == kind:
            set_checked_type(var, kind)
            self.done[var] = var
        else:
            made = Var(var.name_hint, span=var.span)
            set_checked_type(made, kind)
            self.done[var] = made

    def finish(self, at: Any) -> Any:
        new = self.rebuilt(at)
        known = new._checked_type
        if known is not None and not _depends_on_module(new):
            return new
        kind = getattr(self, f"type_of_{new.__class__.__name__.lower()}")(new)
        if known is None:
            set_checked_type(new, kind)
        elif known != kind:
            new = new.replace()
            set_checked_type(new, kind)
        if new.__class__ is Function and new.ret_type is None:
            new = Function(new.params, new.body, kind.ret_type, new.type_params, new.attrs, new.span)
            set_checked_type(new, kind)
        return new

    def rebuilt(self, at: Any) -> Any:
        """The node with its typed children; the same node if they are unchanged."""
        done = self.done
        cls = at.__class__
        if cls is Call:
            op = done[at.op] if isinstance(at.op, Expr) else at.op
            return at.over([done[a] for a in at.args], op=op)
        if cls is Function:
            body = done[at.body]
            if body is at.body:
                return at
            return Function(at.params, body, at.ret_type, at.type_params, at.attrs, at.span)
        return at.map_children(done.__getitem__)

    # -- one kind each -----------------------------------------------------------------------
    def type_of_tuple(self, at: Tuple) -> Type:
        kind = TupleType(tuple(f.checked_type for f in at.fields))
        _check_depth(kind)
        return kind

    def type_of_tuplegetitem(self, at: TupleGetItem) -> Type:
        kind = at.tuple_value.checked_type
        if not isinstance(kind, TupleType):
            raise RelayTypeError(f"field {at.index} of {kind}, which is not a tuple")
        if not 0 <= at.index < len(kind.fields):
            raise RelayTypeError(f"field {at.index} of a tuple of {len(kind.fields)}: {kind}")
        return kind.fields[at.index]

    def type_of_let(self, at: Let) -> Type:
        return at.body.checked_type

    def type_of_if(self, at: If) -> Type:
        cond = at.cond.checked_type
        if not isinstance(cond, TensorType) or cond.shape or str(cond.dtype) != "bool":
            raise RelayTypeError(f"the condition of an `if` must be Tensor[(), bool] and is {cond}")
        a, b = at.true_branch.checked_type, at.false_branch.checked_type
        made = join(a, b)
        if made is None:
            raise RelayTypeError(f"the branches of an `if` have types {a} and {b}")
        return made

    def type_of_function(self, at: Function) -> Type:
        body = at.body.checked_type
        if at.ret_type is not None and not fits(at.ret_type, body):
            raise RelayTypeError(f"a function is annotated to return {at.ret_type} and returns {body}")
        kinds = tuple(p.checked_type for p in at.params)
        return FuncType(kinds, at.ret_type or body, at.type_params)

    def type_of_call(self, at: Call) -> Type:
        kinds = [a.checked_type for a in at.args]
        try:
            if isinstance(at.op, RelayOp):
                return at.op.infer(kinds, at.attrs)
            return self.result_of(at, kinds)
        except RelayTypeError as error:
            raise RelayTypeError(_blame(at, kinds, error)) from None
        except (IndexError, ValueError, ZeroDivisionError, TypeError) as error:
            raise DiagnosticError(_blame(at, kinds, error)) from error

    def result_of(self, at: Call, kinds: list[Any]) -> Type:
        op = at.op
        if isinstance(op, GlobalVar):
            f = self.module.type_of(op)
        elif isinstance(op, Expr):
            f = op.checked_type
        else:
            raise RelayTypeError(f"{op!r} cannot be called")
        if not isinstance(f, FuncType):
            raise RelayTypeError(f"{f} is called, which is not a function")
        if len(f.arg_types) != len(kinds):
            raise RelayTypeError(f"takes {len(f.arg_types)} arguments and got {len(kinds)}")
        found: dict[Any, Type] = dict(zip(f.type_params, at.type_args, strict=False))
        for i, (wanted, given) in enumerate(zip(f.arg_types, kinds, strict=True)):
            if not fits(wanted, given, found):
                raise RelayTypeError(f"must be {wanted} and is {given}", f"argument {i}")
        return _substitute(f.ret_type, found) if found else f.ret_type


def _depends_on_module(at: Any) -> bool:
    """Whether the type may change without the node: that of a global function may."""
    return at.__class__ is Call and isinstance(at.op, GlobalVar)


def _blame(call: Call, kinds: list[Any], error: Exception) -> str:
    """The refusal with the call as text, the types of its arguments and its location."""
    name = getattr(call.op, "name", None) or "the call of a function"
    shown = [f"%{a.name_hint}" if isinstance(a, Var) else f"%{i}" for i, a in enumerate(call.args)]
    typed = ", ".join(f"{n}: {k}" for n, k in zip(shown, kinds, strict=True))
    from ..text import attrs_text

    inner = ", ".join([typed, *attrs_text(call.attrs)] if typed else attrs_text(call.attrs))
    place = f"\n  at {call.span}" if call.span is not None else ""
    return f"{name}: {error}\n  in {name}({inner}){place}"


def fits(wanted: Any, given: Any, found: dict[Any, Type] | None = None) -> bool:
    """Whether a value of type `given` matches `wanted`; type variables are unified."""
    if isinstance(wanted, TypeVar):
        if found is None:
            return wanted is given
        return (
            fits(found.setdefault(wanted, given), given)
            if found.get(wanted) is not wanted
            else wanted is given
        )
    if isinstance(wanted, TensorType) and isinstance(given, TensorType):
        if wanted.dtype != given.dtype or len(wanted.shape) != len(given.shape):
            return False
        return all(same_size(a, b) is not False for a, b in zip(wanted.shape, given.shape, strict=True))
    if isinstance(wanted, TupleType) and isinstance(given, TupleType):
        return len(wanted.fields) == len(given.fields) and all(
            fits(a, b, found) for a, b in zip(wanted.fields, given.fields, strict=True)
        )
    if isinstance(wanted, FuncType) and isinstance(given, FuncType):
        return (
            len(wanted.arg_types) == len(given.arg_types)
            and all(fits(a, b, found) for a, b in zip(wanted.arg_types, given.arg_types, strict=True))
            and fits(wanted.ret_type, given.ret_type, found)
        )
    return bool(wanted == given)


def join(a: Any, b: Any) -> Any:
    """The join of two types: sizes that differ are unknown; None if they are incompatible."""
    if isinstance(a, TensorType) and isinstance(b, TensorType):
        if a.dtype != b.dtype or len(a.shape) != len(b.shape):
            return None
        if a == b:
            return a
        return TensorType(
            [x if same_size(x, y) else AnySize() for x, y in zip(a.shape, b.shape, strict=True)], a.dtype
        )
    if isinstance(a, TupleType) and isinstance(b, TupleType) and len(a.fields) == len(b.fields):
        parts = [join(x, y) for x, y in zip(a.fields, b.fields, strict=True)]
        return None if any(p is None for p in parts) else TupleType(tuple(parts))
    return a if a == b else None


TUPLES: Final = 200  # most nested tuples: types are compared and printed by recursion
PARTS: Final = 100_000


def _check_depth(kind: TupleType) -> None:
    """Refuse a tuple type with too many levels or too many nested fields."""
    level: dict[int, tuple[TupleType, int]] = {id(kind): (kind, 1)}  # with the number of occurrences
    for _ in range(TUPLES):
        below: dict[int, tuple[TupleType, int]] = {}
        for t, times in level.values():
            for f in t.fields:
                if isinstance(f, TupleType):
                    below[id(f)] = (f, below.get(id(f), (f, 0))[1] + times)
        if not below:
            return
        if sum(times for _, times in below.values()) > PARTS:
            raise RelayTypeError(f"a tuple has more than {PARTS} tuples in it")
        level = below
    raise RelayTypeError(f"tuples are nested more than {TUPLES} deep")


def _substitute(kind: Any, found: dict[Any, Type]) -> Any:
    if isinstance(kind, TypeVar):
        return found.get(kind, kind)
    if isinstance(kind, TupleType):
        return TupleType(tuple(_substitute(f, found) for f in kind.fields))
    if isinstance(kind, FuncType):
        inner = {k: v for k, v in found.items() if k not in kind.type_params}
        args = tuple(_substitute(a, inner) for a in kind.arg_types)
        return FuncType(args, _substitute(kind.ret_type, inner), kind.type_params)
    return kind


_INFO: Final = PassInfo(0, "InferType")


def InferType() -> Pass:
    """The pass that finds the type of every expression."""
    return ModulePass(lambda mod, ctx: infer_module(mod), _INFO)


register_pass("InferType", InferType)
