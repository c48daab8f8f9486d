"""PartialEvaluate: what is known before a program runs is computed now, calls of known functions included."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from ...ir.errors import TVMError
from ...ir.module import GlobalVar, IRModule
from ...ir.op import Op
from ..adt import (
    Clause,
    Constructor,
    Match,
    PatternConstructor,
    PatternTuple,
    PatternVar,
    PatternWildcard,
    map_pattern,
)
from ..expr import (
    Call,
    Constant,
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
from ..ty import map_type, substituted
from .infer_type import infer_type
from .normal_form import to_a_normal_form
from .rewriting import is_kept_whole, is_pure_op, let_chain, typed_pass
from .run_now import can_run, run_all

DEPTH: Final = 48  # calls of known functions within one another that are evaluated; deeper ones stay calls
CALLS: Final = 20_000  # of all evaluated calls in a module


def partial_evaluate(mod: IRModule) -> IRModule:
    """Evaluate what follows from constants and from the program alone; the rest stays, one let for each value.

        let %f = fn (%n) { if (%n == 0) { 0 } else { %n + %f(%n - 1) } };
        (%f(3), %x.0 + 1f)                                                  ->    let %v = %x.0 + 1f; (6, %v)

    Known are constants, tuples, values of constructors, functions, and what was last written into a reference that
    nobody else can have changed. A recursive call is evaluated if its known arguments differ from those of the calls
    around it, up to a limit of depth. Needs: types. Gives: A-normal form, in which every write and every call of an
    operator with an effect is still there.
    """
    work = _Evaluator(mod)
    return mod.map_functions(
        lambda f: f if not isinstance(f, Function) or is_kept_whole(f) else work.whole(f)
    )


class _Value:
    """A value: an expression for it that every inner scope may use, what is known of it, or both."""

    __slots__ = ("atom", "known")

    def __init__(self, atom: Any = None, known: Any = None) -> None:
        self.atom, self.known = atom, known


class _Cell:
    """What is known of a reference: that it is this one."""


class _Made:
    """What is known of a value of a data type: its constructor and fields."""

    def __init__(self, constructor: Constructor, fields: Sequence[_Value]) -> None:
        self.constructor, self.fields = constructor, tuple(fields)


class _Closure:
    """What is known of a function: its text, and the values and types of the names in it."""

    def __init__(self, fn: Function, env: _Env, name: Var | None = None) -> None:
        self.fn, self.env, self.name = fn, env, name


class _Env:
    """The values of variables and the types of type variables in a scope of the program."""

    def __init__(self, around: _Env | None = None) -> None:
        self.around, self.values = around, dict[Var, _Value]()
        self.types: dict[Any, Any] = {} if around is None else around.types

    def find(self, var: Var) -> _Value | None:
        at: _Env | None = self
        while at is not None:
            if var in at.values:
                return at.values[var]
            at = at.around
        return None


class _Scope:
    """A block of the result: its lets, and the names of known values that were needed in it."""

    def __init__(self, around: _Scope | None = None) -> None:
        self.around, self.lets = around, list[tuple[Var, Any]]()
        self.atoms: dict[_Value, Any] = {}

    def bind(self, value: Any, name: str = "x") -> Var:
        made = Var(name)
        self.lets.append((made, value))
        return made

    def atom(self, value: _Value) -> Any:
        at: _Scope | None = self
        while at is not None:
            if value in at.atoms:
                return at.atoms[value]
            at = at.around
        return None

    def around_of(self, result: Any) -> Any:
        """The block with a result; a value that is bound only to be the result is it."""
        if self.lets and self.lets[-1][0] is result and not isinstance(self.lets[-1][1], Function):
            result = self.lets.pop()[1]
        for var, value in reversed(self.lets):
            result = Let(var, value, result)
        return result


class _Evaluator:
    def __init__(self, mod: IRModule) -> None:
        self.mod = mod
        self.normal: dict[Function, Function] = {}
        self.cells: dict[_Cell, _Value] = {}  # what the references hold that are known
        self.calls: list[Any] = []  # those around: the function and what is known of its arguments
        self.left = CALLS
        self.scope = _Scope()

    # -- functions -------------------------------------------------------------------------------
    def whole(self, fn: Function) -> Function:
        """A function of the module, for arguments of which nothing is known."""
        env = _Env()
        for p in fn.params:
            env.values[p] = _Value(p)
        body = self.block(lambda: self.run(self.in_normal_form(fn).body, env), {})
        return fn.updated(body=body)

    def in_normal_form(self, fn: Function) -> Function:
        """A function of the module in A-normal form; functions in it are so already."""
        if fn not in self.normal:
            self.normal[fn] = to_a_normal_form(fn)
        return self.normal[fn]

    def block(self, work: Callable[[], _Value], cells: dict[_Cell, _Value]) -> Any:
        """The expression of a block: a branch, or the body of a function, which begins with these references."""
        outer, self.scope = self.scope, _Scope(self.scope)
        kept, self.cells = self.cells, dict(cells)
        try:
            result = self.atom(work())
            return self.scope.around_of(result)
        finally:
            self.scope, self.cells = outer, kept

    def kind(self, kind: Any, env: _Env) -> Any:
        """An annotation, with the types that a call gives for type variables; None where one is not known."""
        if kind is None or not env.types:
            return kind
        missing: list[Any] = []

        def put(leaf: Any) -> Any:
            if leaf in env.types and env.types[leaf] is None:
                missing.append(leaf)
            return env.types.get(leaf) or leaf

        made = map_type(kind, put)
        return None if missing else made

    # -- names of values -------------------------------------------------------------------------
    def atom(self, value: _Value) -> Any:
        """An expression for a value that can be used in this scope; what is only known gets a name here."""
        if value.atom is not None:
            return value.atom
        found = self.scope.atom(value)
        if found is not None:
            return found
        known = value.known
        if isinstance(known, _Closure):
            return self.function(value, known)
        if isinstance(known, tuple):
            made: Any = Tuple([self.atom(v) for v in known])
        else:
            made = Call(known.constructor, [self.atom(v) for v in known.fields])
        self.scope.atoms[value] = named = self.scope.bind(made)
        return named

    def function(self, value: _Value, known: _Closure) -> Any:
        """A known function as one of the result, for arguments of which nothing is known."""
        fn, env = known.fn, _Env(known.env)
        named = Var("f" if known.name is None else known.name.name_hint)
        if known.name is not None:  # within itself it is a function like any other
            env.values[known.name] = _Value(named)
        params = []
        for p in fn.params:
            params.append(Var(p.name_hint, self.kind(p.type_annotation, env), span=p.span))
            env.values[p] = _Value(params[-1])
        body = self.block(lambda: self.run(fn.body, env), {})
        made = Function(params, body, self.kind(fn.ret_type, env), fn.type_params, fn.attrs, fn.span)
        self.scope.lets.append((named, made))
        self.scope.atoms[value] = named
        return named

    # -- expressions -----------------------------------------------------------------------------
    def run(self, expr: Any, env: _Env) -> _Value:
        """The value of an expression in A-normal form."""
        chain, tail = let_chain(expr)
        for let in chain:
            if isinstance(let.value, Function) and not is_kept_whole(let.value):
                env.values[let.var] = _Value(known=_Closure(let.value, env, let.var))
            else:
                env.values[let.var] = self.step(let.value, env)
        return self.step(tail, env)

    def step(self, at: Any, env: _Env) -> _Value:
        if isinstance(at, Var):
            return env.find(at) or _Value(at)
        if isinstance(at, (Constant, GlobalVar, Constructor, Op)):
            return _Value(at, at)
        work = getattr(self, f"run_{at.__class__.__name__.lower()}")
        made: _Value = work(at, env)
        return made

    def emitted(self, made: Any) -> _Value:
        return _Value(self.scope.bind(made))

    def run_let(self, at: Let, env: _Env) -> _Value:
        return self.run(at, _Env(env))

    def run_tuple(self, at: Tuple, env: _Env) -> _Value:
        return _Value(known=tuple(self.step(f, env) for f in at.fields))

    def run_tuplegetitem(self, at: TupleGetItem, env: _Env) -> _Value:
        whole = self.step(at.tuple_value, env)
        if isinstance(whole.known, tuple):
            field: _Value = whole.known[at.index]
            return field
        return self.emitted(TupleGetItem(self.atom(whole), at.index, at.span))

    def run_function(self, at: Function, env: _Env) -> _Value:
        return self.emitted(at) if is_kept_whole(at) else _Value(known=_Closure(at, env))

    # -- references ------------------------------------------------------------------------------
    def run_refcreate(self, at: RefCreate, env: _Env) -> _Value:
        value = self.step(at.value, env)
        made = self.emitted(RefCreate(self.atom(value), at.span))
        made.known = _Cell()
        self.cells[made.known] = value
        return made

    def run_refread(self, at: RefRead, env: _Env) -> _Value:
        cell = self.step(at.ref, env)
        if cell.known in self.cells:
            return self.cells[cell.known]
        value = self.emitted(RefRead(self.atom(cell), at.span))
        if cell.known is not None:
            self.cells[cell.known] = value
        return value

    def run_refwrite(self, at: RefWrite, env: _Env) -> _Value:
        cell, value = self.step(at.ref, env), self.step(at.value, env)
        self.scope.bind(RefWrite(self.atom(cell), self.atom(value), at.span))
        if cell.known is None:
            self.cells.clear()  # it may be any of them
        else:
            self.cells[cell.known] = value
        return _Value(known=())

    # -- branches --------------------------------------------------------------------------------
    def branches(self, sides: Sequence[tuple[Any, _Env]]) -> list[Any]:
        """The blocks of which one is run; after them, a reference is known if none of them wrote to it."""
        before, ends, made = dict(self.cells), list[dict[_Cell, _Value]](), []
        for side, env in sides:

            def work(side: Any = side, env: _Env = env) -> _Value:
                value = self.run(side, env)
                ends.append(dict(self.cells))
                return value

            made.append(self.block(work, before))
        self.cells = {c: v for c, v in before.items() if all(e.get(c) is v for e in ends)}
        return made

    def run_if(self, at: If, env: _Env) -> _Value:
        cond = self.step(at.cond, env)
        if isinstance(cond.known, Constant):
            return self.run(at.true_branch if cond.known.numpy().item() else at.false_branch, _Env(env))
        flag = self.atom(cond)
        yes, no = self.branches([(side, _Env(env)) for side in (at.true_branch, at.false_branch)])
        return self.emitted(If(flag, yes, no, at.span))

    def run_match(self, at: Match, env: _Env) -> _Value:
        data = self.step(at.data, env)
        left: list[Clause] = []
        for clause in at.clauses:
            inner = _Env(env)
            fits = self.fits(clause.lhs, data, inner)
            if fits and not left:
                return self.run(clause.rhs, inner)
            if fits is not False:
                left.append(clause)
        value = self.atom(data)
        left = left or list(at.clauses)  # none fits: running it says so
        patterns, sides = [], []
        for clause in left:
            inner = _Env(env)

            def fresh(old: Var, values: dict[Var, _Value] = inner.values) -> Any:
                return values.setdefault(old, _Value(Var(old.name_hint))).atom

            patterns.append(map_pattern(clause.lhs, fresh, lambda c: c))
            sides.append((clause.rhs, inner))
        results = self.branches(sides)
        clauses = [Clause(p, r) for p, r in zip(patterns, results, strict=True)]
        return self.emitted(Match(value, clauses, at.complete, at.span))

    def fits(self, pattern: Any, value: _Value, env: _Env) -> bool | None:
        """Whether a value has the form of a pattern, whose variables it binds; None if that is not known now."""
        if isinstance(pattern, PatternVar):
            env.values[pattern.var] = value
            return True
        if isinstance(pattern, PatternWildcard):
            return True
        known = value.known
        if isinstance(pattern, PatternTuple) and isinstance(known, tuple):
            fields: Sequence[_Value] = known
        elif isinstance(pattern, PatternConstructor) and isinstance(known, _Made):
            if known.constructor.tag != pattern.constructor.tag:
                return False
            fields = known.fields
        else:
            return None
        found = [self.fits(p, v, env) for p, v in zip(pattern.patterns, fields, strict=True)]
        return False if False in found else None if None in found else True

    # -- calls -----------------------------------------------------------------------------------
    def run_call(self, at: Call, env: _Env) -> _Value:
        f, args = self.step(at.op, env), [self.step(a, env) for a in at.args]
        if isinstance(f.known, Constructor):
            return _Value(known=_Made(f.known, args))
        if isinstance(f.known, Op):
            return self.operator(at, f.known, args)
        known = self.closure(f.known)
        if known is not None:
            key = (known.fn, tuple(map(_facts, args)))
            if len(self.calls) < DEPTH and self.left and key not in self.calls:
                return self.entered(known, at, args, key, env)
        made = self.emitted(Call(self.atom(f), [self.atom(a) for a in args], at.attrs, None, at.span))
        self.cells.clear()  # the function may write to any of them
        return made

    def closure(self, known: Any) -> _Closure | None:
        """The known function behind a value, if it may be entered."""
        if isinstance(known, GlobalVar):
            fn = self.mod.functions.get(known)
            if isinstance(fn, Function) and not is_kept_whole(fn):
                return _Closure(self.in_normal_form(fn), _Env())
            return None
        return known if isinstance(known, _Closure) else None

    def entered(self, known: _Closure, at: Call, args: list[_Value], key: Any, around: _Env) -> _Value:
        """The result of a known function, evaluated in the place of the call."""
        env = _Env(known.env)
        if known.name is not None:
            env.values[known.name] = _Value(known=known)
        if known.fn.type_params:
            given = [substituted(t, around.types) for t in at.type_args] or [None] * len(known.fn.type_params)
            env.types = {**env.types, **dict(zip(known.fn.type_params, given, strict=True))}
        env.values.update(zip(known.fn.params, args, strict=True))
        self.calls.append(key)
        self.left -= 1
        try:
            return self.run(known.fn.body, env)
        finally:
            self.calls.pop()

    def operator(self, at: Call, op: Any, args: list[_Value]) -> _Value:
        if is_pure_op(op):
            given = [_constant(a) for a in args]
            if all(g is not None for g in given):
                result = _computed(Call(op, given, at.attrs, None, at.span))
                if result is not None:
                    return result
        return self.emitted(Call(op, [self.atom(a) for a in args], at.attrs, None, at.span))


def _constant(value: _Value) -> Any:
    """A value as a constant, or a tuple of them; None if it is not known."""
    if isinstance(value.known, Constant):
        return value.known
    if isinstance(value.known, tuple):
        fields = [_constant(v) for v in value.known]
        return None if any(f is None for f in fields) else Tuple(fields)
    return None


def _computed(call: Call) -> _Value | None:
    """The value of an operator over constants; None if it cannot be run now."""
    try:
        typed: Any = infer_type(call)
    except TVMError:
        return None
    if not can_run(call.op, typed.checked_type):
        return None

    def value(made: Any) -> _Value:
        if isinstance(made, Tuple):
            return _Value(known=tuple(map(value, made.fields)))
        return _Value(made, made)

    return value(run_all([typed])[0])


def _facts(value: _Value) -> Any:
    """What is known of an argument, so that it can be compared with that of another call."""
    known = value.known
    if isinstance(known, Constant):
        array = known.numpy()
        return (str(array.dtype), array.shape, array.tobytes()) if array.size <= 64 else id(known)
    if isinstance(known, tuple):
        return tuple(map(_facts, known))
    if isinstance(known, _Made):
        return (known.constructor, *map(_facts, known.fields))
    return known.fn if isinstance(known, _Closure) else known


PartialEvaluate = typed_pass(partial_evaluate, name="PartialEvaluate", opt_level=1, whole_module=True)
