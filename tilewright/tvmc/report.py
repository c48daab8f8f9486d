"""The contents of a model: its operators with shapes and arithmetic, and the kernels after fusion."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from math import prod
from typing import Any

from .. import te
from ..ir.errors import BuildError, TVMError
from ..ir.module import IRModule
from ..relay.analysis import post_order
from ..relay.backend.graph_form import graph_form
from ..relay.backend.lower import inner_order, te_of
from ..relay.backend.program import _is_view
from ..relay.backend.work import nodes_of
from ..relay.build_module import as_target, optimize
from ..relay.expr import Call, Constant, Function
from ..relay.interface import output_names
from ..relay.op.registry import RelayOp
from ..relay.transform.fuse_ops import FuseOps, fuse_ops, is_primitive
from ..relay.transform.infer_type import infer_module
from ..relay.ty import TensorType, is_dynamic, tensor_fields
from ..runtime.dtypes import ELEMENTS
from ..tir.analysis import estimate_tir_flops
from .model import TVMCModel


@dataclass(frozen=True, slots=True)
class Kernel:
    """One or several operators that become one kernel; `flops` is None if sizes are dynamic."""

    operators: tuple[str, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    flops: float | None
    nodes: tuple[str, ...] = ()  # of the source: the one that takes the time, then the others

    @property
    def name(self) -> str:
        return " + ".join(self.operators)

    def has(self, text: str) -> bool:
        """Whether a text is a part of the name of one of its nodes or operators."""
        return any(text in name for name in (*self.nodes, *self.operators, self.label))

    @property
    def label(self) -> str:
        """The name of its kernel and of its tuning task, without a number."""
        return "fused_" + "_".join(name.replace(".", "_") for name in self.operators)


@dataclass(frozen=True, slots=True)
class ModelReport:
    """The figures of a model: `operators` are the imported ones, `groups` the kernels after fusion."""

    name: str
    inputs: dict[str, str]
    outputs: dict[str, str]
    parameters: int
    parameter_bytes: int
    operators: tuple[Kernel, ...]
    groups: tuple[Kernel, ...]
    note: str = ""  # the reason if there are no groups

    @property
    def flops(self) -> float | None:
        return total(self.operators)

    def only(self, text: str) -> ModelReport:
        """The report of the operators and kernels whose nodes or operators have a text in their names."""
        kept = [tuple(k for k in kernels if k.has(text)) for kernels in (self.operators, self.groups)]
        return replace(self, operators=kept[0], groups=kept[1])

    def plain(self) -> dict[str, Any]:
        """The report as data."""
        return {**asdict(self), "flops": self.flops}


def total(kernels: Iterable[Kernel]) -> float | None:
    """The arithmetic of all kernels; None if that of one is unknown."""
    found = [k.flops for k in kernels]
    return None if any(f is None for f in found) else float(sum(f for f in found if f is not None))


def describe(model: TVMCModel, target: Any = "llvm", groups: bool = True) -> ModelReport:
    """The report of a model; with `groups`, after the graph passes for a target."""
    mod = infer_module(model.mod)
    main = _as_graph(mod)
    counter = _Counter()
    operators = counter.kernels(fuse_ops(main, level=0))
    fused: tuple[Kernel, ...] = ()
    note = ""
    if groups:
        try:
            chosen = as_target(target)
            ready, _ = optimize(model.mod, chosen, model.params)
            with chosen:
                fused = counter.kernels(FuseOps(2)(ready)["main"], views=False)
        except TVMError as error:
            note = str(error)
    arrays = [*model.params.values(), *_weights(main)]
    results = tensor_fields(main.ret_type or main.body.checked_type)
    return ModelReport(
        model.name,
        {name: _text(kind) for name, kind in model.inputs().items()},
        {name: _text(t) for name, t in zip(output_names(main, len(results)), results, strict=True)},
        sum(int(prod(a.shape)) for a in arrays),
        sum(int(prod(a.shape)) * ELEMENTS[str(a.dtype)].itemsize for a in arrays),
        operators,
        fused,
        note,
    )


def _weights(main: Function) -> list[Any]:
    """The constants in the graph that are weights, and not shapes or indices."""
    found = [e.data for e in post_order(main.body) if isinstance(e, Constant)]
    return [a for a in found if prod(a.shape) > 1 and str(a.dtype) not in ("bool", "int32", "int64")]


def _as_graph(mod: IRModule) -> Function:
    try:
        main = graph_form(mod, mod["main"])
    except BuildError:  # a recursive function stays as it is
        return mod["main"]  # type: ignore[no-any-return]
    return infer_module(IRModule({"main": main}, mod.type_definitions, mod.attrs))["main"]  # type: ignore[no-any-return]


def _text(kind: Any) -> str:
    if not isinstance(kind, TensorType):
        return str(kind)
    return f"{kind.dtype}[{', '.join(str(d).replace('T.', '') for d in kind.shape)}]"


class _Counter:
    """Counts the arithmetic of kernels, once for equal ones."""

    def __init__(self) -> None:
        self.known: dict[str, float | None] = {}

    def kernels(self, main: Function, views: bool = True) -> tuple[Kernel, ...]:
        """The fused functions in order; those that only change a shape are left out unless `views`."""
        main = infer_module(IRModule({"main": main}))["main"]
        calls = [e for e in post_order(main.body) if isinstance(e, Call) and is_primitive(e.op)]
        return tuple(self.kernel(c) for c in calls if views or not _is_view(c.op))

    def kernel(self, call: Call) -> Kernel:
        fn: Function = call.op
        inner = [e for e in inner_order(fn) if isinstance(e, Call) and isinstance(e.op, RelayOp)]
        ins = tuple(_text(t) for p in fn.params for t in tensor_fields(p.checked_type))
        outs = tuple(_text(t) for t in tensor_fields(call.checked_type))
        return Kernel(tuple(e.op.name for e in inner), ins, outs, self.flops(fn), tuple(nodes_of(fn)))

    def flops(self, fn: Function) -> float | None:
        key = str(fn)
        if key not in self.known:
            self.known[key] = _flops(fn)
        return self.known[key]


def _flops(fn: Function) -> float | None:
    # A loop of dynamic extent would be counted once.
    if any(e.checked_type is not None and is_dynamic(e.checked_type) for e in (*fn.params, *inner_order(fn))):
        return None
    try:
        inputs, outputs = te_of(fn)
        return estimate_tir_flops(te.create_prim_func([*inputs, *outputs]))
    except TVMError:  # an operator without a compute function
        return None
