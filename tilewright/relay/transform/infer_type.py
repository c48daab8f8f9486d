"""InferType: the type of every expression, inferred from its operands."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final
from weakref import WeakSet

from ...ir.errors import DiagnosticError
from ...ir.module import GlobalVar, IRModule
from ...ir.transform import ModulePass, Pass, PassInfo, register_pass
from ..adt import Constructor, Match, PatternConstructor, PatternTuple, PatternVar
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
    set_checked_type,
)
from ..op.registry import RelayOp, RelayTypeError
from ..op.shapes import same_size
from ..ty import Any as AnySize
from ..ty import FuncType, IncompleteType, RefType, TensorType, TupleType, Type
from .type_solver import Solver, is_open

# Functions with all types known, which depend on no other function: nodes do not change, so no walk finds more.
_complete: Final[WeakSet[Function]] = WeakSet()

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


def infer_functions(mod: IRModule, names: Iterable[GlobalVar]) -> None:
    """Infer the types of some functions of a module, which is changed."""
    work = _Module(mod)
    for gv in names:
        mod.functions[gv] = work.function(gv)


def infer_type(expr: Any, mod: IRModule | None = None) -> Any:
    """The expression with its types known. A variable without a type gets that which its uses determine."""
    return _Module(mod or IRModule()).expr(expr)


def InferTypeLocal(expr: Any, mod: IRModule | None = None) -> Any:
    """The type of an expression under construction.

    Existing types are trusted, so that calls at each step of a long graph cost no more than one pass.
    """
    if expr._checked_type is None:
        found = _Module(mod or IRModule()).expr(expr, believe=True).checked_type
        if expr._checked_type is None:  # a node with the type was made in its place
            set_checked_type(expr, found)
    return expr._checked_type


class _Module:
    """The functions of a module, typed when they are first needed."""

    def __init__(self, mod: IRModule) -> None:
        self.mod = mod
        self.done: dict[GlobalVar, Function] = {}
        self.busy: list[GlobalVar] = []
        self.results: dict[GlobalVar, Any] = {}  # results of functions that are visited, and not known yet
        self.solver = Solver()
        self.open: list[Any] = []  # nodes whose types have unknown parts
        self.asked = False  # whether the type of a function of the module was used

    def expr(self, expr: Any, believe: bool = False) -> Any:
        try:
            made = _Infer(self, believe).run(expr)
            self.close()
        except BaseException:
            self.forget()
            raise
        return made

    def function(self, gv: GlobalVar) -> Function:
        found = self.done.get(gv)
        if found is None:
            given = self.mod.functions[gv]
            if given in _complete:
                self.done[gv] = given
                gv.checked_type = given.checked_type
                return given
            self.busy.append(gv)
            try:
                found = self.done[gv] = _Infer(self).run(given)
                if not (self.asked or self.open or self.solver.active):
                    _complete.add(found)
                if gv in self.results:
                    self.solver.unify(self.results[gv], found.checked_type.ret_type)
                gv.checked_type = found.checked_type
                if self.solver.active:
                    self.open.append(gv)
                if len(self.busy) == 1:
                    self.close()
            except BaseException:
                self.forget()
                raise
            self.busy.pop()
        return found

    def type_of(self, gv: GlobalVar) -> Any:
        self.asked = True
        if gv not in self.mod.functions:
            raise RelayTypeError(f"the module has no function {gv}")
        f = self.mod.functions[gv]
        if not isinstance(f, Function):
            return gv.checked_type
        params = [p._checked_type for p in f.params]
        if f.ret_type is not None and all(p is not None for p in params):
            return FuncType(tuple(p for p in params if p is not None), f.ret_type, f.type_params)
        if gv in self.busy:
            if gv not in self.results:
                self.results[gv] = f.ret_type or self.solver.unknown()
            return FuncType(tuple(p.checked_type for p in f.params), self.results[gv], f.type_params)
        return self.function(gv).checked_type

    # -- unknown types -----------------------------------------------------------------------
    def close(self) -> None:
        """Put what was learned into the nodes. An expression of which nothing was learned is refused."""
        solver = self.solver
        if not solver.active:
            return
        solver.solve()
        for at in self.open:
            kind = solver.resolved(at.checked_type)
            if kind.__class__ is IncompleteType:
                raise RelayTypeError(self.blame(at))
            if isinstance(at, GlobalVar):
                at.checked_type = kind
                continue
            set_checked_type(at, kind)
            if at.__class__ is Function:
                object.__setattr__(at, "ret_type", kind.ret_type)
            elif at.__class__ is Call and at.type_args:
                object.__setattr__(at, "type_args", tuple(map(solver.resolved, at.type_args)))
        self.open, self.solver, self.results = [], Solver(), {}

    def forget(self) -> None:
        """Leave no half-known type in a node."""
        for at in self.open:
            if isinstance(at, GlobalVar):
                at.checked_type = None
            elif at.__class__ is Var:
                set_checked_type(at, at.type_annotation)
            else:
                set_checked_type(at, None)
                if at.__class__ is Call and any(map(is_open, at.type_args)):
                    object.__setattr__(at, "type_args", ())
        self.open = []

    def blame(self, at: Any) -> str:
        """Why the type of an expression stays unknown: its variable, or the function that only calls itself."""
        names = [g.name_hint for g in self.results]
        if isinstance(at, Var):
            return (
                f"variable %{at.name_hint} has no type: it is not annotated, and its uses do not determine it; "
                f'give one, as relay.var("{at.name_hint}", shape=…)'
            )
        if names:
            chain = " -> ".join([*names, names[0]])
            return f"@{names[0]} calls itself ({chain}) and needs a declared return type: ret_type=…"
        loose = next((v for v in self.open if isinstance(v, Var) and self.is_loose(v)), None)
        if loose is not None:
            return self.blame(loose)
        name = getattr(getattr(at, "op", None), "name", type(at).__name__)
        place = f"\n  at {at.span}" if at.span is not None else ""
        return f"the type of {name} is not determined; annotate a variable or the result of a function{place}"

    def is_loose(self, at: Any) -> bool:
        return self.solver.resolved(at._checked_type).__class__ is IncompleteType


class _Infer:
    """One walk over an expression, without recursion. `done` has for each node its typed one."""

    def __init__(self, module: _Module, believe: bool = False) -> None:
        self.module, self.believe, self.solver = module, believe, module.solver
        self.done: dict[Any, Any] = {}

    def run(self, root: Any) -> Any:
        done = self.done
        stack: list[tuple[int, Any]] = [(_VISIT, root)]
        while stack:
            action, at = stack.pop()
            if action == _FINISH:
                done[at] = self.finish(at)
            elif action == _BIND:
                if at.__class__ is Match:
                    for clause in at.clauses:
                        self.bind_pattern(clause.lhs, self.kind_of(done[at.data]))
                else:
                    self.bind(at.var, self.kind_of(done[at.value]))
            elif at not in done:
                self.visit(at, stack)
        return done[root]

    def visit(self, at: Any, stack: list[tuple[int, Any]]) -> None:
        cls: Any = at.__class__
        if cls is Var:
            if at._checked_type is None and self.believe:
                raise RelayTypeError(
                    f"variable %{at.name_hint} has no type: it is neither bound nor annotated"
                )
            self.declare(at)
        elif issubclass(cls, RelayOp):  # operators of calls are not children
            raise RelayTypeError(f"the operator {at.name} is used as a value; an operator can only be called")
        elif cls is Constant or not issubclass(cls, Expr) or (self.believe and at._checked_type is not None):
            self.done[at] = at
        elif cls is Constructor:
            if at._checked_type is None:
                raise RelayTypeError(f"the constructor {at.name_hint} belongs to no relay.TypeData")
            self.done[at] = at
        elif cls is Let:
            if at.var.type_annotation is not None or at.value.__class__ is Function:
                self.declare(at.var)  # a function may call itself
            stack += [(_FINISH, at), (_VISIT, at.body), (_BIND, at), (_VISIT, at.value)]
        elif cls is Match:
            stack.append((_FINISH, at))
            stack += [(_VISIT, c.rhs) for c in reversed(at.clauses)]
            stack += [(_BIND, at), (_VISIT, at.data)]
        else:
            if cls is Function:
                for p in at.params:
                    self.declare(p)
            stack.append((_FINISH, at))
            done = self.done
            for b in reversed(at.children()):
                if b not in done:
                    stack.append((_VISIT, b))

    def declare(self, var: Var) -> None:
        """A variable before its value is seen."""
        if var._checked_type is None:
            set_checked_type(var, self.solver.unknown())
            self.module.open.append(var)
        elif var.type_annotation is not None and is_open(var._checked_type):
            self.solver.active = True
            self.module.open.append(var)
        self.done[var] = var

    def kind_of(self, value: Any) -> Any:
        """The type of a value, which may be a function of the module by its name."""
        found = self.module.type_of(value) if isinstance(value, GlobalVar) else value._checked_type
        return self.solver.resolved(found)

    def same(self, a: Any, b: Any, what: str) -> None:
        """Two types that must be the same."""
        if not self.solver.unify(a, b):
            raise RelayTypeError(what)

    def bind(self, var: Var, kind: Any) -> None:
        """A bound variable has the type of its value."""
        known = self.solver.resolved(var._checked_type)
        if var.type_annotation is not None or (known is not None and is_open(known)):
            if kind is not None:
                self.same(known, kind, f"%{var.name_hint} is annotated {known} and its value is {kind}")
            if var not in self.done:
                self.declare(var)
        elif known is None or known == kind:
            set_checked_type(var, kind)
            self.done[var] = var
            self.note(var, kind)
        else:
            made = Var(var.name_hint, span=var.span)
            set_checked_type(made, kind)
            self.note(made, kind)
            self.done[var] = made

    def note(self, at: Any, kind: Any) -> None:
        """Remember a node whose type has unknown parts."""
        if self.solver.active and kind is not None and is_open(kind):
            self.module.open.append(at)

    def bind_pattern(self, pattern: Any, kind: Any) -> None:
        """The types of the variables of a pattern of values of a type."""
        if isinstance(pattern, PatternVar):
            self.bind(pattern.var, self.solver.resolved(kind))
            return
        inner = getattr(pattern, "patterns", ())
        if isinstance(pattern, PatternConstructor):
            made: Any = pattern.constructor._checked_type
            if made is None:
                raise RelayTypeError(
                    f"the constructor {pattern.constructor.name_hint} belongs to no relay.TypeData"
                )
            given = self.solver.generic(made)[0]
            self.same(
                given.ret_type,
                kind,
                f"the pattern {pattern.constructor.name_hint} does not match values of {kind}",
            )
            kinds = given.arg_types
        elif isinstance(pattern, PatternTuple):
            kinds = tuple(self.solver.unknown() for _ in inner)
            self.same(
                TupleType(kinds), kind, f"a pattern of {len(inner)} values does not match values of {kind}"
            )
        else:
            return
        if len(kinds) != len(inner):
            raise RelayTypeError(
                f"the pattern {pattern.constructor.name_hint} has {len(inner)} fields, its constructor {len(kinds)}"
            )
        for p, k in zip(inner, kinds, strict=True):
            self.bind_pattern(p, k)

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
        self.note(new, kind)
        return new

    def rebuilt(self, at: Any) -> Any:
        """The node with its typed children; the same node if they are unchanged."""
        done = self.done
        cls = at.__class__
        if cls is Call:
            op = done[at.op] if isinstance(at.op, Expr) else at.op
            new = at.over([done[a] for a in at.args], op=op)
            if new is not at and at.type_args and at.args:  # inferred from the arguments before
                new = Call(op, new.args, new.attrs, None, at.span)
            return new
        if cls is Function:
            return at.updated(body=done[at.body])
        return at.map_children(done.__getitem__)

    # -- one kind each -----------------------------------------------------------------------
    def type_of_tuple(self, at: Tuple) -> Type:
        kind = TupleType(tuple(self.kind_of(f) for f in at.fields))
        _check_depth(kind)
        return kind

    def type_of_tuplegetitem(self, at: TupleGetItem) -> Type:
        def field(kind: Any) -> Any:
            if not isinstance(kind, TupleType):
                raise RelayTypeError(f"field {at.index} of {kind}, which is not a tuple")
            if not 0 <= at.index < len(kind.fields):
                raise RelayTypeError(f"field {at.index} of a tuple of {len(kind.fields)}: {kind}")
            return kind.fields[at.index]

        return self.when_known(lambda: self.kind_of(at.tuple_value), field)

    def when_known(self, kind: Callable[[], Any], then: Callable[[Any], Any]) -> Any:
        """A type that follows from another, or an unknown one until that is known."""
        if kind().__class__ is IncompleteType:
            self.solver.solve()
        found = kind()
        if found.__class__ is not IncompleteType:
            return then(found)
        made = self.solver.unknown()

        def attempt() -> bool:
            now = kind()
            if now.__class__ is IncompleteType:
                return False
            self.same(made, then(now), f"a value of {now} is used as another type")
            return True

        self.solver.later(attempt)
        return made

    def type_of_let(self, at: Let) -> Type:
        return self.kind_of(at.body)

    def type_of_if(self, at: If) -> Type:
        cond = self.kind_of(at.cond)
        flag = TensorType((), "bool")
        if cond.__class__ is IncompleteType:
            self.solver.unify(cond, flag)
        elif not isinstance(cond, TensorType) or cond.shape or str(cond.dtype) != "bool":
            raise RelayTypeError(f"the condition of an `if` must be Tensor[(), bool] and is {cond}")
        a, b = self.kind_of(at.true_branch), self.kind_of(at.false_branch)
        return self.joined(a, b, "the branches of an `if`")

    def joined(self, a: Any, b: Any, what: str) -> Any:
        """The type of a value that is one of two."""
        made = join(a, b)
        if made is None:
            self.same(a, b, f"{what} have types {a} and {b}")
            made = self.solver.resolved(a)
            if isinstance(made, FuncType) and made.type_params:  # one of them knows its types
                made = self.solver.resolved(b)
        return made

    def type_of_match(self, at: Match) -> Type:
        made = self.kind_of(at.clauses[0].rhs)
        for clause in at.clauses[1:]:
            made = self.joined(made, self.kind_of(clause.rhs), "the clauses of a `match`")
        return self.solver.resolved(made)

    def type_of_refcreate(self, at: RefCreate) -> Type:
        return RefType(self.kind_of(at.value))

    def type_of_refread(self, at: RefRead) -> Type:
        made = self.solver.unknown()
        kind = self.kind_of(at.ref)
        self.same(kind, RefType(made), f"{kind} is read as a reference")
        return self.solver.resolved(made)

    def type_of_refwrite(self, at: RefWrite) -> Type:
        kind, value = self.kind_of(at.ref), self.kind_of(at.value)
        self.same(kind, RefType(value), f"{value} is written into {kind}")
        return TupleType()

    def type_of_function(self, at: Function) -> Type:
        body = self.kind_of(at.body)
        if at.ret_type is not None and not self.solver.unify(at.ret_type, body):
            raise RelayTypeError(f"a function is annotated to return {at.ret_type} and returns {body}")
        kinds = tuple(self.kind_of(p) for p in at.params)
        result = body if at.ret_type is None else self.solver.resolved(at.ret_type)
        return FuncType(kinds, result, at.type_params)

    def type_of_call(self, at: Call) -> Type:
        if isinstance(at.op, RelayOp):
            kinds = [self.kind_of(a) for a in at.args]
            if self.solver.active and any(map(is_open, kinds)):
                return self.open_operator(at)
            return self.result_of_operator(at, kinds)
        kinds = [self.kind_of(a) for a in at.args]
        return self.blamed(at, kinds, lambda: self.result_of(at, kinds))

    def blamed(self, at: Call, kinds: list[Any], work: Callable[[], Any]) -> Any:
        try:
            return work()
        except RelayTypeError as error:
            raise RelayTypeError(_blame(at, kinds, error)) from None
        except (IndexError, ValueError, ZeroDivisionError, TypeError) as error:
            raise DiagnosticError(_blame(at, kinds, error)) from error

    def result_of_operator(self, at: Call, kinds: list[Any]) -> Any:
        """The result of an operator with arguments of known types, which the call keeps."""
        result = self.blamed(at, kinds, lambda: at.op.infer(kinds, at.attrs))
        object.__setattr__(at, "type_args", tuple(kinds))
        return result

    def open_operator(self, at: Call) -> Type:
        """The result of an operator with arguments of unknown type: its declaration may say what weights are."""
        made = self.solver.unknown()

        def attempt() -> bool:
            kinds = [self.kind_of(a) for a in at.args]
            weights = at.op.traits.weights
            if weights is not None and isinstance(kinds[0], TensorType):
                told = self.blamed(at, kinds, lambda: weights(kinds[0], at.attrs))
                for kind, wanted in zip(kinds[1:], told, strict=False):
                    if kind.__class__ is IncompleteType and wanted is not None:
                        self.solver.unify(kind, wanted)
                kinds = [self.solver.resolved(k) for k in kinds]
            if any(map(is_open, kinds)):
                return False
            result = self.result_of_operator(at, kinds)
            self.same(made, result, f"the result of {at.op.name} is {result} and is used as another type")
            return True

        if attempt():
            return self.solver.resolved(made)
        self.solver.later(attempt)
        return made

    def result_of(self, at: Call, kinds: list[Any]) -> Type:
        op = at.op
        if not isinstance(op, (Expr, GlobalVar)):
            raise RelayTypeError(f"{op!r} cannot be called")
        f = self.kind_of(op)
        if f.__class__ is IncompleteType:
            result = self.solver.unknown()
            self.same(f, FuncType(tuple(kinds), result), "is called with its own result")
            return result
        if not isinstance(f, FuncType):
            raise RelayTypeError(f"{f} is called, which is not a function")
        if len(f.arg_types) != len(kinds):
            raise RelayTypeError(f"takes {len(f.arg_types)} arguments and got {len(kinds)}")
        plain, own = self.solver.generic(f, at.type_args)
        for i, (wanted, given) in enumerate(zip(plain.arg_types, kinds, strict=True)):
            if not self.solver.unify(wanted, given):
                shown = self.solver.resolved(wanted)
                shown = f.arg_types[i] if is_open(shown) else shown
                raise RelayTypeError(f"must be {shown} and is {given}", f"argument {i}")
        if own and not at.type_args:
            object.__setattr__(at, "type_args", tuple(map(self.solver.resolved, own)))
            if any(map(is_open, at.type_args)):
                self.module.open.append(at)
        return self.solver.resolved(plain.ret_type)


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


_INFO: Final = PassInfo(0, "InferType")


def InferType() -> Pass:
    """The pass that finds the type of every expression."""
    return ModulePass(lambda mod, ctx: infer_module(mod), _INFO)


register_pass("InferType", InferType)
