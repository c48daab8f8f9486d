"""Functions for other code generators: each is given to `relay.ext.NAME`, and its module becomes a kernel of the model.

fn (%a, Compiler="mine", global_symbol="f") {…}  ──relay.ext.mine(fn)──▶  module with the function "f"
    made by tvm.build, or machine code:    linked into the model
    anything else:                         the model calls it by name, through Python: runtime/external.py
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ... import te
from ...codegen.llvm.linked import LinkedModule, Unit, unit_of
from ...codegen.llvm.module import LLVMModule
from ...compiler.build import build
from ...ir.errors import BuildError
from ...ir.module import GlobalVar, IRModule
from ...ir.ops import call_packed
from ...runtime.cache import digest
from ...runtime.external import External
from ...runtime.module import Module
from ...runtime.ndarray import NDArray
from ...runtime.registry import get_global_func
from ...target import Target
from ...tir.analysis.inplace import INPLACE
from ..engines import MISSING
from ..expr import Call, Constant, Function
from ..transform.annotate_target import DEFAULT
from ..transform.infer_type import infer_module
from ..ty import TensorType, tensor_fields
from ..visitor import ExprMutator, in_order
from .kernel import Job, Kernel
from .lower import tensor_shape


def is_external(fn: Any) -> bool:
    """Whether a function is for another code generator."""
    return isinstance(fn, Function) and fn.attrs.get("Compiler", DEFAULT) != DEFAULT


def call_in_place(mod: IRModule) -> IRModule:
    """Put functions for other code generators where they are called, as kernels.

        def @f(%a, Compiler="mine") {…}             def @main(%x) {
        def @main(%x) { @f(%x) }             ->       fn (%a, Compiler="mine", Primitive=1, global_symbol="f") {…}(%x) }

    Every one has a name of its own.
    """
    found = {gv: f for gv, f in mod.functions.items() if is_external(f)}
    for gv, f in mod.functions.items():
        if isinstance(f, Function) and f.attrs.get("Extern"):
            raise BuildError(
                f"{gv} is marked Extern: another code generator has its code, and this model cannot call it; keep its "
                "attribute Compiler, so that relay.ext.NAME gives the code"
            )
    work = _InPlace(found)
    kept = {gv: f for gv, f in mod.functions.items() if gv not in found}
    made = {gv: work.visit(f) if isinstance(f, Function) else f for gv, f in kept.items()}
    if not found and all(made[gv] is f for gv, f in kept.items()):
        return mod
    return infer_module(IRModule(made, mod.type_definitions, mod.attrs))


class _InPlace(ExprMutator):
    def __init__(self, found: Mapping[GlobalVar, Function]) -> None:
        super().__init__()
        self.found = found
        self.names: dict[str, Function] = {}
        self.made: dict[Any, Function] = {}

    def visit_function(self, fn: Function) -> Any:
        if is_external(fn):
            return self.named(fn, f"{re.sub(r'[^A-Za-z0-9_]', '_', fn.attrs['Compiler'])}_{len(self.names)}")
        return fn if fn.attrs.get("Primitive") else super().visit_function(fn)

    def visit_global_var(self, gvar: GlobalVar) -> Any:
        fn = self.found.get(gvar)
        return gvar if fn is None else self.named(fn, gvar.name_hint)

    def named(self, fn: Function, name: str) -> Function:
        if fn not in self.made:
            name = str(fn.attrs.get("global_symbol", name))
            if name in self.names:
                raise BuildError(
                    f"two functions for code generators have the name {name!r}; give each another global_symbol"
                )
            attrs = {**fn.attrs, "Primitive": 1, "global_symbol": name}
            made = (
                fn if attrs == fn.attrs else Function(fn.params, fn.body, fn.ret_type, None, attrs, fn.span)
            )
            self.names[name] = self.made[fn] = made
        return self.made[fn]


def external_job(fn: Function) -> Job:
    """The compilation job of a function for another code generator."""
    symbol = str(fn.attrs["global_symbol"])
    kinds = [str(t) for t in _tensors(fn)]
    label = re.sub(r"\W", "_", symbol)
    return Job(fn, (), digest("external", symbol, *kinds), label, cached=False, plain=True, external=True)


def _tensors(fn: Function) -> list[TensorType]:
    """The types of its inputs and results, with tuples flattened."""
    kinds = (*(p.checked_type for p in fn.params), fn.checked_type.ret_type)
    return [t for k in kinds for t in tensor_fields(k)]


class CodeGenerators:
    """Calls `relay.ext.NAME` once for each function of a model."""

    def __init__(self) -> None:
        self._made: dict[str, External] = {}

    def kernels(self, jobs: Sequence[Job], target: Target) -> dict[str, Kernel]:
        """The kernels of jobs, by key."""
        host = target if target.has("aot_executor") else Target("llvm")
        with host:
            made = {job.key: self._kernel(job, host) for job in jobs}
        if target is host:
            return made
        return {k: replace(v, on_host=f"{v.compiler} computes it") for k, v in made.items()}

    def generated(self, fn: Function) -> External:
        """What the code generator of a function returned."""
        symbol = str(fn.attrs["global_symbol"])
        if symbol not in self._made:
            self._made[symbol] = _generated(fn, symbol)
        return self._made[symbol]

    def _kernel(self, job: Job, host: Target) -> Kernel:
        fn, compiler = job.fn, str(job.fn.attrs["Compiler"])
        found = self.generated(fn)
        unit = _unit_of(found, fn)
        if unit is not None:
            return Kernel(unit.functions[0]["name"], unit, None, (), (), compiler=compiler)
        inputs = [
            te.placeholder(tensor_shape(t), str(t.dtype), name=f"p{i}") for i, t in enumerate(_inputs(fn))
        ]
        results = tensor_fields(fn.checked_type.ret_type)
        outs = te.extern(
            [tensor_shape(t) for t in results],
            inputs,
            lambda ins, outs: call_packed(found.packed, *ins, *outs),
            name=job.label,
            dtype=[str(t.dtype) for t in results],
        )
        outs = [outs] if len(results) == 1 else list(outs)
        func = te.create_prim_func([*inputs, *outs]).with_attr("global_symbol", job.symbol)
        func = func.with_attr(INPLACE, None)  # inputs may be the same array
        code = unit_of(build(IRModule({job.symbol: func}), target=host))
        code = replace(code, functions=tuple(_reading(f, len(inputs)) for f in code.functions))
        return Kernel(job.symbol, code, None, (), (), external=found, compiler=compiler)


def _reading(about: Mapping[str, Any], count: int) -> dict[str, Any]:
    """The description of a function that only reads its first parameters: the call hides what it does with them."""
    params = [{**p, "access": "r" if i < count else "w"} for i, p in enumerate(about["params"])]
    return {**about, "params": params, "apart": []}


def _inputs(fn: Function) -> list[TensorType]:
    return [t for p in fn.params for t in tensor_fields(p.checked_type)]


def _generated(fn: Function, symbol: str) -> External:
    """The module of a function, as its code generator returns it."""
    compiler = str(fn.attrs["Compiler"])
    work = get_global_func(f"relay.ext.{compiler}", allow_missing=True)
    if work is None:
        raise BuildError(
            f"the function {symbol!r} is for the code generator {compiler!r}, and there is none: "
            + MISSING.get(compiler, f"register it with @tvm.register_func('relay.ext.{compiler}')")
            + f", or do not give {compiler!r} to AnnotateTarget"
        )
    module = work(fn)
    if not isinstance(module, Module):
        raise BuildError(
            f"relay.ext.{compiler}({symbol}) returned {type(module).__name__} and must return a runtime.Module, such "
            "as that of tvm.build or a runtime.ExternalModule"
        )
    if not module.implements_function(symbol):
        listed = ", ".join(module.function_names) or "none"
        raise BuildError(
            f"relay.ext.{compiler}({symbol}): the module that it returned has no function {symbol!r}, but: {listed}"
        )
    return External(symbol, module, constants=_constants(fn, symbol, compiler, module)).named()


def _constants(fn: Function, symbol: str, compiler: str, module: Module) -> dict[str, NDArray]:
    """The arrays for the module's `__init_<symbol>`: those of `relay.ext.NAME.constant_updater`, or the function's."""
    takes = module.implements_function(f"__init_{symbol}")
    update = get_global_func(f"relay.ext.{compiler}.constant_updater", allow_missing=True)
    if update is None:
        arrays = [e.data for e in in_order(fn.body) if isinstance(e, Constant)] if takes else []
        return {f"{symbol}_const_{i}": a for i, a in enumerate(arrays)}
    made = dict(update(fn, symbol))
    if made and not takes:
        raise BuildError(
            f"relay.ext.{compiler}.constant_updater returned {len(made)} constants for {symbol!r}, and the module of "
            f"relay.ext.{compiler} has no function '__init_{symbol}' that takes them"
        )
    return made


def _unit_of(found: External, fn: Function) -> Unit | None:
    """The machine code of a module, which the model calls directly; None if it has none."""
    module = found.module
    if isinstance(module, LLVMModule) and not module.imported_modules:
        unit = unit_of(module)
    elif isinstance(module, LinkedModule) and len(module.units) == 1:
        (unit,) = module.units
    else:
        return None
    (about,) = [f for f in unit.functions if f["name"] == found.symbol]
    others = [f for f in unit.functions if f is not about]
    given = [(p["kind"], p["dtype"], len(p.get("shape", ()))) for p in about["params"]]
    wanted = [("buffer", str(t.dtype), len(t.shape)) for t in _tensors(fn)]
    if given != wanted:
        listed = ", ".join(map(str, _tensors(fn)))
        raise BuildError(
            f"relay.ext.{fn.attrs['Compiler']}({found.symbol}): its function must take the inputs and then the "
            f"results, {listed}; it takes {len(given)} parameters: {', '.join(p['name'] for p in about['params'])}"
        )
    return replace(unit, functions=(about, *others))


def calls_of(fn: Function) -> list[Call]:
    """The calls in the body of a function for a code generator, in the order in which they are computed."""
    return [e for e in in_order(fn.body, lambda e: e.children()) if isinstance(e, Call)]
