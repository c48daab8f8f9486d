"""Gradient: the gradients of the parameters of a function, beside its result."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from ...ir.errors import TVMError
from ...ir.module import GlobalVar, IRModule
from ..analysis import free_vars, post_order
from ..expr import Call, Constant, Expr, Function, If, Let, Tuple, TupleGetItem, Var
from ..op.gradients.reverse import Adjoint, Reverse, as_adjoint, as_value, filled, has_floats
from ..op.registry import RelayOp
from ..ty import FuncType, TupleType
from ..visitor import ExprMutator, flow_inputs, in_order
from .infer_type import infer_type
from .inline import copied, fresh, substituted
from .normal_form import to_a_normal_form
from .rewriting import let_chain, typed_pass


def gradient(expr: Any, mod: IRModule | None = None, mode: str = "higher_order") -> Function:
    """A function that returns the result of another, and the gradients of its parameters.

        fn (%x, %w) { nn.dense(%x, %w) }      ->      fn (%x, %w) {
                                                        (nn.dense(%x, %w), (grad of %x, grad of %w))
                                                      }

    The gradient of the result is taken as ones; a parameter of integers gets zeros. Of a result that is a tuple, mode
    "higher_order" differentiates the first field (a loss, with other results beside it) and "first_order" the sum of
    all. Each operator has its rule (`Traits.gradient`). Branches, lets, tuples and functions that call themselves are
    differentiated in both modes, without references or closures.
    """
    if mode not in ("higher_order", "first_order"):
        raise ValueError(f"gradient: mode is {mode!r} and may be 'higher_order' or 'first_order'")
    if isinstance(expr, GlobalVar):
        if mod is None:
            raise ValueError(f"gradient: {expr} is the name of a function, and no module is given")
        expr = mod[expr]
    if not isinstance(expr, Function):
        raise TypeError(f"gradient: a relay.Function was expected, not {type(expr).__name__}")
    module = IRModule() if mod is None else mod
    func = infer_type(fresh(expr), module)
    return _Gradient(module, mode == "higher_order").function(func)


def first_order_gradient(mod: IRModule) -> IRModule:
    """Each function of the module with the gradients of its parameters beside its result: see `gradient`."""
    return mod.map_functions(lambda f: gradient(f, mod, "first_order") if isinstance(f, Function) else f)


FirstOrderGradient = typed_pass(
    first_order_gradient, name="FirstOrderGradient", opt_level=0, whole_module=True
)


def lazy_gradient_init(func: Function) -> Function:
    """Remove sums with zeros and products with ones: gradients are not initialized and then added to.

    add(%x, zeros_like(%y))           ->      %x
    multiply(%x, ones_like(%x))       ->      %x
    """
    from .simplify_expr import simplify_expr

    return simplify_expr(func)


LazyGradientInit = typed_pass(lazy_gradient_init, name="LazyGradientInit", opt_level=0)


_KNOWN: Final = frozenset({Call, Constant, Function, If, Let, Tuple, TupleGetItem, Var})


class _Gradient:
    """The functions of one program, each with its counterpart that returns gradients."""

    def __init__(self, mod: IRModule, first_field: bool) -> None:
        self.mod, self.first_field = mod, first_field
        self.known: dict[Any, _Companion] = {}  # by the name that is called

    def function(self, func: Function) -> Function:
        func = self.straight(func)
        for p in func.params:
            _need_data(p.checked_type, f"parameter %{p.name_hint}")
        block = _Block(self, func.body)
        kind = block.result.checked_type
        _need_data(kind, "the result")
        found = block.pulled(
            _ones(block.result, kind, self.first_field),
            [p for p in func.params if has_floats(p.checked_type)],
        )
        grads = [as_value(found.get(p), p, p.checked_type) for p in func.params]
        body = block.closed(Tuple([block.result, Tuple(block.named(grads))]))
        return infer_type(Function(func.params, body, None, func.type_params, func.attrs), self.mod)

    def straight(self, func: Function) -> Function:
        """Calls of functions inlined, unless they call themselves; values let-bound if there are scopes."""
        func = infer_type(_Inlined(self.mod).visit(func), self.mod)
        for e in post_order(func):
            _need_known(e)
        if any(isinstance(e, (If, Let, GlobalVar)) for e in post_order(func.body)):
            func = infer_type(to_a_normal_form(func), self.mod)
        return func

    def companion(self, callee: Any, place: str) -> _Companion:
        found = self.known.get(callee)
        if found is None and isinstance(callee, GlobalVar):
            found = self.of_module(callee)
        if found is None:
            raise TVMError(
                f"gradient: {place} calls a function that is a value (a parameter, or the result of a branch); "
                "call functions by their names"
            )
        return found

    def of_module(self, gv: GlobalVar) -> _Companion:
        """The counterpart of a function of the module, which becomes a function of the module too."""
        func = self.straight(infer_type(fresh(self.mod[gv]), self.mod))
        name = _unused(f"{gv.name_hint}_grad", self.mod)
        made = _Companion(name, func, ())
        name.checked_type = made.kind
        self.known[gv] = made
        self.mod[name] = made.defined(self)
        return made


def _unused(name: str, mod: IRModule) -> GlobalVar:
    taken, number, made = {g.name_hint for g in mod.functions}, 0, name
    while made in taken:
        number += 1
        made = f"{name}_{number}"
    return GlobalVar(made)


def _need_known(at: Any) -> None:
    """Refuse what gradients do not pass through: silence would make them zero."""
    if isinstance(at, Expr) and at.__class__ not in _KNOWN:
        raise TVMError(
            f"gradient: a {type(at).__name__} has no gradient here; write the function with lets, tuples, branches and "
            "functions"
        )


def _need_data(kind: Any, what: str) -> None:
    if isinstance(kind, FuncType):
        raise TVMError(f"gradient: {what} is a function; tensors and tuples of tensors have gradients")
    for field in kind.fields if isinstance(kind, TupleType) else ():
        _need_data(field, what)


def _ones(of: Any, kind: Any, first_field: bool) -> Adjoint:
    if isinstance(kind, TupleType):
        seeds = [_ones(TupleGetItem(of, i), k, first_field) for i, k in enumerate(kind.fields)]
        return [seeds[0], *[None] * (len(seeds) - 1)] if first_field and seeds else seeds
    return filled(1, of, kind) if has_floats(kind) else None


class _Companion:
    """fn (x…, grad of the result) -> (grad of x…, grad of what it captures…), for a function that calls itself."""

    def __init__(self, name: Any, func: Function, captured: Iterable[Var]) -> None:
        self.name, self.func = name, func
        self.captured = list(captured)
        self.ret = func.ret_type if func.ret_type is not None else func.body.checked_type
        self.wanted = [p for p in func.params if has_floats(p.checked_type)]
        kinds = [v.checked_type for v in (*self.wanted, *self.captured)]
        params = (*(p.checked_type for p in func.params), self.ret)
        self.grads = TupleType(tuple(kinds))
        self.kind = FuncType(params, self.grads)

    def defined(self, work: _Gradient) -> Function:
        func = self.func
        seed = Var("grad", self.ret)
        block = _Block(work, func.body)
        sources = [*self.wanted, *self.captured]
        found = block.pulled(as_adjoint(seed, self.ret), sources)
        body = block.closed(Tuple(block.named([as_value(found.get(v), v, v.checked_type) for v in sources])))
        made = Function([*func.params, seed], body, self.grads)
        return copied(made)  # type: ignore[no-any-return]

    def passed(self, at: Call, adjoint: Adjoint) -> list[tuple[Any, Adjoint]]:
        """What a call passes to its arguments, and to what the function captures."""
        grads = Call(self.name, [*at.args, as_value(adjoint, at, self.ret)])
        float_args = [a for a, p in zip(at.args, self.func.params, strict=True) if p in self.wanted]
        ends = [*float_args, *self.captured]
        return [(end, as_adjoint(TupleGetItem(grads, i), self.grads.fields[i])) for i, end in enumerate(ends)]


class _Inlined(ExprMutator):
    """Calls of functions replaced by their bodies, unless the functions call themselves."""

    def __init__(self, mod: IRModule) -> None:
        super().__init__()
        self.mod = mod
        self.held: dict[Var, Function] = {}
        self.busy: list[GlobalVar] = []

    def visit_let(self, let: Let) -> Any:
        value = let.value
        if isinstance(value, Function) and not any(v is let.var for v in free_vars(value)):
            self.held[let.var] = self.visit(value)
            return self.visit(let.body)
        new = self.visit(value)
        if isinstance(new, Function):
            self.held.pop(let.var, None)
        body = self.visit(let.body)
        return let if new is value and body is let.body else Let(let.var, new, body, span=let.span)

    def visit_var(self, var: Any) -> Any:
        return self.held.get(var, var)

    def visit_call(self, call: Call) -> Any:
        op = call.op
        if isinstance(op, RelayOp):
            return super().visit_call(call)
        callee = self.visit(op)
        args = [self.visit(a) for a in call.args]
        if isinstance(callee, GlobalVar) and self.is_plain(callee):
            self.busy.append(callee)
            callee = _Inlined(self.mod)._with(self.busy).visit(self.mod[callee])
            self.busy.pop()
        if (
            isinstance(callee, Function)
            and not callee.attrs.get("Primitive")
            and "Compiler" not in callee.attrs
        ):
            inner = Let  # each argument is computed once
            params = [Var(p.name_hint, p.type_annotation) for p in callee.params]
            body = _Inlined(self.mod)._with(self.busy).visit(substituted(callee, params))
            if not _has_scope(body) and not any(isinstance(a, Function) for a in args):
                return substituted(Function(params, body), args)
            for p, a in zip(reversed(params), reversed(args), strict=True):
                body = substituted(Function([p], body), [a]) if isinstance(a, Function) else inner(p, a, body)
            return _Inlined(self.mod)._with(self.busy).visit(body)
        return call.over(args, op=callee)

    def _with(self, busy: list[GlobalVar]) -> _Inlined:
        self.busy = list(busy)
        return self

    def is_plain(self, gv: GlobalVar) -> bool:
        """Whether a function of the module does not reach itself."""
        if gv in self.busy or gv not in self.mod.functions:
            return False
        seen: set[GlobalVar] = set()
        stack = [gv]
        while stack:
            func = self.mod.functions.get(stack.pop())
            if not isinstance(func, Function):
                return False
            for e in post_order(func):
                if e is gv:
                    return False
                if isinstance(e, GlobalVar) and e not in seen:
                    seen.add(e)
                    stack.append(e)
        return True


def _has_scope(expr: Any) -> bool:
    return any(isinstance(e, (Let, If, Function)) for e in post_order(expr))


class _Block(Reverse):
    """One scope: lets, then a result. Values of outer scopes are variables in it."""

    def __init__(self, work: _Gradient, body: Any) -> None:
        self.work = work
        self.lets, self.result = let_chain(body)
        self.rows: list[tuple[Var, Any]] = []
        self.values: dict[Any, Any] = {}  # of the variables that are bound here
        for let in self.lets:
            self.rows.append((let.var, let.value))
            if isinstance(let.value, Function):
                self.add_function(let)
            else:
                self.values[let.var] = let.value

    def add_function(self, let: Let) -> None:
        """A function that calls itself, and its counterpart after it."""
        func: Any = let.value
        reached = [v for v in free_vars(func) if v is not let.var]
        captured = [v for v in reached if v not in self.work.known and has_floats(v.checked_type)]
        for v in reached:  # what the functions capture that it calls
            if v in self.work.known:
                captured += [c for c in self.work.known[v].captured if c not in captured]
        name = Var(f"{let.var.name_hint}_grad")
        made = _Companion(name, func, captured)
        name = Var(name.name_hint, made.kind)
        made.name = name
        self.work.known[let.var] = made
        self.rows.append((name, made.defined(self.work)))

    # -- the walk ----------------------------------------------------------------------------
    def inputs(self, at: Any) -> Iterable[Any]:
        if at.__class__ is Var:
            return (self.values[at],) if at in self.values else ()
        if at.__class__ is If:
            return (*free_vars(at.true_branch), *free_vars(at.false_branch))
        if at.__class__ is Call and not isinstance(at.op, RelayOp):
            return (*at.args, *self.work.companion(at.op, "it").captured)
        return flow_inputs(at)

    def pulled(self, seed: Adjoint, sources: Sequence[Any]) -> dict[Any, Adjoint]:
        """The gradients of the sources, given that of the result."""
        order = in_order(Tuple([*self.values, self.result]), self.inputs)[:-1]
        return self.run(order, {self.result: seed}, sources)

    def kind(self, at: Any) -> Any:
        return at.checked_type if isinstance(at, Expr) else None

    def passed(self, at: Any, adjoint: Adjoint) -> list[tuple[Any, Adjoint]]:
        if at.__class__ is Var:
            return [(self.values[at], adjoint)]
        if at.__class__ is If:
            return self.through_branches(at, adjoint)
        if at.__class__ is Call and not isinstance(at.op, RelayOp):
            return self.work.companion(at.op, "it").passed(at, adjoint)
        return super().passed(at, adjoint)

    def through_branches(self, at: If, adjoint: Adjoint) -> list[tuple[Any, Adjoint]]:
        """The gradients of what the branches read, by a branch on the same condition."""
        seed = Var("grad", at.checked_type)
        ends = [
            v
            for v in dict.fromkeys((*free_vars(at.true_branch), *free_vars(at.false_branch)))
            if has_floats(v.checked_type) and v not in self.work.known
        ]
        parts = []
        for branch in (at.true_branch, at.false_branch):
            inner = _Block(self.work, infer_type(copied(branch), self.work.mod))
            found = inner.pulled(as_adjoint(seed, at.checked_type), ends)
            parts.append(
                inner.closed(Tuple(inner.named([as_value(found.get(v), v, v.checked_type) for v in ends])))
            )
        given = as_value(adjoint, at, at.checked_type)
        kinds = TupleType(tuple(v.checked_type for v in ends))
        made = Let(seed, given, If(at.cond, parts[0], parts[1]))
        return [(v, as_adjoint(TupleGetItem(made, i), kinds.fields[i])) for i, v in enumerate(ends)]

    # -- the result --------------------------------------------------------------------------
    def named(self, exprs: Sequence[Any]) -> list[Any]:
        """Expressions of gradients, with the names of values that are bound here."""
        walk = ExprMutator()
        walk.memo_map.update({value: var for var, value in self.values.items()})
        return [walk.visit(e) for e in exprs]

    def closed(self, body: Any) -> Any:
        """The lets of this scope around an expression."""
        for var, value in reversed(self.rows):
            body = Let(var, value, body)
        return body
