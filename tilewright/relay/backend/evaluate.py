"""`relay.create_executor`: run expressions and functions from Python."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ...ir.errors import TVMError
from ...ir.module import GlobalVar, IRModule
from ...ir.transform import PassContext
from ...runtime.arguments import in_order
from ...runtime.container import ADT
from ...runtime.devices import Device
from ...runtime.executor import Executor
from ...runtime.ndarray import NDArray
from ..adt import Constructor, Match
from ..analysis import free_vars, post_order
from ..binding import bind, bind_params_by_name
from ..expr import Call, Constant, Expr, Function, If, Let, RefCreate, Var
from ..interface import is_tensors, shaped
from ..transform.fuse_ops import is_primitive
from ..transform.infer_type import infer_module, infer_type
from ..ty import TensorType, TupleType, is_dynamic
from ..visitor import ExprMutator

_KINDS = ("graph", "aot", "debug", "vm")


def make_evaluator(
    kind: str, mod: Any, device: Device, target: Any, params: Mapping[str, Any] | None
) -> Evaluator:
    """The evaluator that `create_executor` returns."""
    if kind not in _KINDS:
        raise ValueError(f"create_executor({kind!r}): there are {', '.join(_KINDS)}")
    if mod is None:
        mod = IRModule()
    elif isinstance(mod, Expr):
        mod = IRModule.from_expr(mod)
    if not isinstance(mod, IRModule):
        raise TypeError(f"create_executor takes an IRModule, not {type(mod).__name__}")
    return Evaluator(kind, mod, device, target, params)


class Evaluator:
    """Compiles functions of a module and calls them."""

    def __init__(
        self, kind: str, mod: IRModule, device: Device, target: Any, params: Mapping[str, Any] | None
    ) -> None:
        self.kind, self.mod, self.device, self.target = kind, mod, device, target
        self.params = params

    def evaluate(self, expr: Any = None, binds: Mapping[Any, Any] | None = None) -> Any:
        """A function as a callable of arrays; the value of an expression, or of a function with bound values.

        Results are arrays, and tuples of them.
        """
        if binds:
            if expr is None:
                raise ValueError("evaluate(binds=…) needs the expression that has the variables")
            expr = bind(expr, binds)
        if isinstance(expr, IRModule):
            return Evaluator(self.kind, expr, self.device, self.target, self.params).evaluate()
        if expr is None:
            expr = self.mod.get_global_var("main")
        if isinstance(expr, (Function, GlobalVar)):
            return self._function(expr)
        free = free_vars(expr)
        if free:
            names = ", ".join(f"%{v.name_hint}" for v in free)
            raise ValueError(f"evaluate: {names} has no value: give it in binds, or make a relay.Function")
        return self._function(Function([], expr))()

    def _function(self, expr: Function | GlobalVar) -> Callable[..., Any]:
        mod = self.mod.clone()
        func: Function = mod[expr] if isinstance(expr, GlobalVar) else expr
        main = next((gv for gv in mod.functions if gv.name_hint == "main"), None)
        bound = bind_params_by_name(func, self.params)
        if main is not None and expr is main:
            mod[main] = bound
        elif main is not None:
            renamed = _Renamed({main: GlobalVar("main_")})
            mod = IRModule(
                {renamed.visit(gv): renamed.visit(f) for gv, f in mod.functions.items()},
                mod.type_definitions,
                mod.attrs,
            )
            mod["main"] = renamed.visit(bound)
        else:
            mod["main"] = bound
        typed = infer_module(mod)
        kept = typed["main"]
        make = self._machine if self.kind == "vm" or _needs_machine(typed, kept) else self._compiled
        run: Callable[[list[Any]], Any] | None = None
        context = PassContext.current()

        def call(*args: Any, **kwargs: Any) -> Any:
            nonlocal run
            given = _arguments(kept, args, kwargs)
            if run is None:
                with context:
                    run = make(typed)
            result = run(given)
            return _listed(result) if self.kind in ("graph", "aot") else result

        return call

    def _compiled(self, mod: IRModule) -> Callable[[list[Any]], Any]:
        from ..build_module import build

        mod = mod.clone()
        mod["main"] = _with_own_names(mod["main"])
        executor: Executor = build(mod, self.target).create(self.device)
        kind = mod["main"].checked_type.ret_type

        def run(args: list[Any]) -> Any:
            for i, value in enumerate(_flat(args)):
                executor.set_input(i, value)
            executor.run()
            count = executor.get_num_outputs()
            outputs = [executor.get_output(i).copyto(self.device) for i in range(count)]
            return shaped(kind, outputs)

        return run

    def _machine(self, mod: IRModule) -> Callable[[list[Any]], Any]:
        from ...runtime.vm import VirtualMachine
        from .vm import compile_program

        machine = VirtualMachine(compile_program(mod, self.target), self.device)
        if self.kind != "debug":
            return lambda args: machine.call("main", args)
        from .interpreter import with_constructors

        return lambda args: with_constructors(machine.call("main", args), mod)


def _listed(value: Any) -> Any:
    """A tuple as a list, as the graph and the ahead-of-time executor return it; the machine returns objects."""
    return [_listed(field) for field in value] if isinstance(value, ADT) else value


class _Renamed(ExprMutator):
    """References to functions under other names."""

    def __init__(self, names: dict[GlobalVar, GlobalVar]) -> None:
        super().__init__()
        self.names = names

    def visit_global_var(self, gvar: GlobalVar) -> Any:
        return self.names.get(gvar, gvar)


def _with_own_names(fn: Function) -> Function:
    """A function whose parameters have different names: arguments are given in order."""
    taken: set[str] = set()
    named: dict[Any, Any] = {}
    for p in fn.params:
        if p.name_hint in taken:
            number = next(i for i in range(1, len(fn.params) + 1) if f"{p.name_hint}_{i}" not in taken)
            named[p] = Var(f"{p.name_hint}_{number}", p.checked_type, span=p.span)
        taken.add(named.get(p, p).name_hint)
    if not named:
        return fn
    body: Any = bind(fn.body, named)
    params = [named.get(p, p) for p in fn.params]
    return infer_type(Function(params, body, fn.ret_type, fn.type_params, fn.attrs, fn.span))


class VMExecutor(Evaluator):
    """The evaluator of the kind "vm"."""

    def __init__(self, mod: IRModule, device: Device, target: Any) -> None:
        super().__init__("vm", mod, device, target, None)


def _needs_machine(mod: IRModule, main: Function) -> bool:
    """Whether a program branches, calls itself, or has sizes that are known only when it runs."""
    kinds = [main.checked_type.ret_type, *(p.checked_type for p in main.params)]
    if any(is_dynamic(k) or not is_tensors(k) for k in kinds):
        return True
    calls_itself = {gv for gv, f in mod.functions.items() if isinstance(f, Function) and f is not main}
    for e in post_order(main):
        if isinstance(e, (If, Match, Constructor, RefCreate)):
            return True
        if isinstance(e, Let) and isinstance(e.value, Function) and not is_primitive(e.value):
            if any(v is e.var for v in free_vars(e.value)):
                return True
        if isinstance(e, Call):
            if isinstance(e.op, GlobalVar) and e.op in calls_itself and _reaches(mod, e.op):
                return True
            if is_dynamic(e.checked_type):
                return True
    return False


def _reaches(mod: IRModule, gv: GlobalVar) -> bool:
    """Whether a function of the module branches or reaches itself."""
    seen: set[GlobalVar] = set()
    stack = [gv]
    while stack:
        for e in post_order(mod[stack.pop()]):
            if isinstance(e, (If, Match, Constructor, RefCreate)) or e is gv:
                return True
            if isinstance(e, GlobalVar) and e not in seen and e in mod:
                seen.add(e)
                stack.append(e)
    return False


def _arguments(func: Function, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[Any]:
    """The arguments in order, as arrays."""
    names = [p.name_hint for p in func.params]
    given = in_order("the function", names, args, kwargs)
    return [_as_value(value, p) for value, p in zip(given, func.params, strict=True)]


def _as_value(value: Any, param: Var) -> Any:
    kind = param.checked_type
    if isinstance(kind, TupleType):
        return [_as_value(v, Var(param.name_hint, k)) for v, k in zip(value, kind.fields, strict=True)]
    if not isinstance(kind, TensorType):
        return value
    if isinstance(value, NDArray):
        return value
    if isinstance(value, Constant):
        return value.data
    if isinstance(value, Expr):
        raise TVMError(f"argument {param.name_hint!r} is an expression; give an array")
    if isinstance(value, (bool, int, float, list, tuple)):
        from ...runtime.dtypes import ELEMENTS

        return np.asarray(value, ELEMENTS[str(kind.dtype)].numpy)
    return value


def _flat(values: Any) -> list[Any]:
    out: list[Any] = []
    for v in values:
        out += _flat(v) if isinstance(v, (list, tuple)) else [v]
    return out
