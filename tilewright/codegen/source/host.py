"""Host programs as data: launches, workspaces between kernels, and the sizes of both."""

from __future__ import annotations

from typing import Any

from ...ir.dtype import INT64
from ...ir.errors import LoweringError
from ...ir.expr import Call, Cast, FloatImm, IntImm, PrimExpr, Var, const_value
from ...ir.function import PrimFunc
from ...ir.functor import pre_order
from ...ir.module import GlobalVar
from ...ir.op import Op
from ...ir.ops import mul
from ...ir.printer_names import free_name
from ...ir.stmt import Evaluate, Stmt
from .kernel import TENSOR_MAP

# Annotations of the pass that separates kernels: `tir.transform.SplitHostDevice`.
LAUNCH_PARAMS, DYNAMIC_SHARED = "tir.kernel_launch_params", "tir.use_dyn_shared_memory"
CLUSTER = "clusterCtaIdx.x"
_OPS = {
    "Add": "+",
    "Sub": "-",
    "Mul": "*",
    "FloorDiv": "//",
    "FloorMod": "%",
    "Div": "quot",
    "Mod": "rem",
    "Min": "min",
    "Max": "max",
    "LT": "<",
    "LE": "<=",
    "EQ": "==",
    "NE": "!=",
    "And": "and",
    "Or": "or",
}
_CALLS = {"bitwise_and": "&", "bitwise_or": "|", "bitwise_xor": "^", "shift_right": ">>", "shift_left": "<<"}


def host_program(
    func: PrimFunc, kernels: dict[str, PrimFunc], arguments: list[tuple[Var, str]]
) -> dict[str, Any]:
    """The host program of a function without its kernels; `arguments` are its C arguments and their names."""
    writer = _Writer(func, kernels, arguments)
    body = writer.steps(func.body)
    used = {name: writer.kinds(kernels[name]) for name in writer.launched}
    return {"kernels": used, "body": body}


def _kind(p: Var) -> str:
    if getattr(p.type_annotation, "storage_scope", "") == TENSOR_MAP:
        return "map"
    return "ptr" if p.dtype.is_handle else str(p.dtype)


class _Writer:
    def __init__(
        self, func: PrimFunc, kernels: dict[str, PrimFunc], arguments: list[tuple[Var, str]]
    ) -> None:
        self.func, self.kernels = func, kernels
        self.names: dict[Var, str] = dict(arguments)
        self.taken = set(self.names.values())
        self.launched: dict[str, None] = {}

    def define(self, var: Var) -> str:
        made = self.names[var] = free_name(var.name, self.taken)
        self.taken.add(made)
        return made

    @staticmethod
    def kinds(kernel: PrimFunc) -> list[str]:
        return [_kind(p) for p in kernel.params]

    def value(self, e: PrimExpr) -> Any:
        if isinstance(e, IntImm):
            return bool(e.value) if e.dtype.is_bool else e.value
        if isinstance(e, FloatImm):
            return e.value
        if isinstance(e, Var):
            if e not in self.names:
                raise LoweringError(f"{self._where()}: the host does not know `{e.name}`")
            return self.names[e]
        if isinstance(e, Cast) and e.dtype.is_integral and e.value.dtype.is_integral:
            return self.value(e.value)
        name = e.__class__.__name__
        if name in _OPS:
            return [_OPS[name], self.value(e.a), self.value(e.b)]  # type: ignore[attr-defined]
        if name in ("GT", "GE"):
            return [_OPS["LT" if name == "GT" else "LE"], self.value(e.b), self.value(e.a)]  # type: ignore[attr-defined]
        if name == "Not":
            return ["not", self.value(e.a)]  # type: ignore[attr-defined]
        if name == "Select":
            return ["select", *(self.value(c) for c in (e.condition, e.true_value, e.false_value))]  # type: ignore[attr-defined]
        if isinstance(e, Call) and isinstance(e.op, Op):
            if e.op.short_name == "likely":
                return self.value(e.args[0])
            if e.op.short_name == "if_then_else":
                return ["select", *(self.value(a) for a in e.args)]
            if e.op.short_name == "tensor_map":
                pointer, kind, rank, *numbers = e.args
                count = int(const_value(rank) or 0)
                values = [self.value(n) for n in numbers]
                parts = values[:count], values[count : 2 * count - 1], values[2 * count - 1 :]
                return ["map", self.value(pointer), getattr(kind, "value", ""), *map(list, parts)]
            if e.op.short_name in _CALLS:
                return [_CALLS[e.op.short_name], *(self.value(a) for a in e.args)]
        raise LoweringError(f"{self._where()}: the host cannot compute `{e}`")

    def _where(self) -> str:
        return str(self.func.attrs.get("global_symbol", "main"))

    def steps(self, n: Stmt) -> list[Any]:
        name = n.__class__.__name__
        if name == "SeqStmt":
            return [step for s in n.seq for step in self.steps(s)]  # type: ignore[attr-defined]
        made: Any = n
        if name == "LetStmt":
            value = self.value(made.value)
            return [["let", self.define(made.var), value, self.steps(made.body)]]
        if name == "Allocate":
            size: PrimExpr = IntImm("int64", made.dtype.nbytes)
            for extent in made.extents:
                size = mul(size, Cast(INT64, extent))
            nbytes = self.value(size)
            return [["alloc", self.define(made.buffer_var), nbytes, self.steps(made.body)]]
        if name == "For":
            low, count = self.value(made.min), self.value(made.extent)
            return [["for", self.define(made.loop_var), low, count, self.steps(made.body)]]
        if name == "IfThenElse":
            other = [] if made.else_case is None else self.steps(made.else_case)
            return [["if", self.value(made.condition), self.steps(made.then_case), other]]
        if name == "AssertStmt":
            message = getattr(made.message, "value", "an assertion failed")
            return [["assert", self.value(made.condition), message, self.steps(made.body)]]
        if isinstance(n, Evaluate) and isinstance(n.value, Call) and isinstance(n.value.op, GlobalVar):
            return [self.launch(n.value)]
        if isinstance(n, Evaluate) and not any(isinstance(m, Call) for m in pre_order(n)):
            return []
        raise LoweringError(f"{self._where()}: the host cannot do `{n}`")

    def launch(self, call: Call) -> list[Any]:
        name = call.op.name_hint
        kernel = self.kernels[name]
        self.launched[name] = None
        count = len(kernel.params)
        values = [self.value(a) for a in call.args]
        sizes = dict(zip(kernel.attrs[LAUNCH_PARAMS], values[count:], strict=True))
        grid = [sizes.get(f"blockIdx.{axis}", 1) for axis in "xyz"]
        block = [sizes.get(f"threadIdx.{axis}", 1) for axis in "xyz"]
        cluster = sizes.get(CLUSTER, 1)  # clusters are along the first axis
        if cluster != 1:
            grid[0] = grid[0] * cluster if isinstance(grid[0], int) else ["*", grid[0], cluster]
        return ["launch", name, values[:count], grid, block, sizes.get(DYNAMIC_SHARED, 0)]
