"""Compilation for the virtual machine: programs with branches, loops, closures and dynamic shapes.

    passes · fusion  ->  instructions over symbolic sizes  ->  the same kernels as ahead-of-time programs, compiled
    once for all sizes (`vm_cases`)  ->  an executable, which saves as one library

A function without a kernel for symbolic sizes is compiled at run time for concrete sizes; such programs cannot be
saved.
"""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from ...codegen.llvm.linked import LinkedModule
from ...forks import new_in_child
from ...ir.deep import deep_programs
from ...ir.errors import BuildError, TVMError
from ...ir.expr import SizeVar
from ...ir.module import IRModule
from ...ir.transform import PassContext
from ...runtime.device_module import DEVICES, DeviceModule
from ...runtime.dtypes import ELEMENTS
from ...runtime.external import attach
from ...runtime.model import LAUNCHES
from ...runtime.module import Module
from ...runtime.ndarray import NDArray, empty
from ...runtime.profiling import parse_roof
from ...runtime.vm import VM, Executable, launching
from ...runtime.vm_code import FunctionCode, Interface, Program, site_of
from ...runtime.vm_verify import parse_work
from ...target import Target
from ..analysis import post_order
from ..binding import bind
from ..expr import Call, Constant, Function, Var, const
from ..interface import interface_of
from ..op.registry import RelayOp
from ..transform.check_data import CheckData
from ..transform.fold_sizes import FoldSizes
from ..transform.fuse_ops import fuse_ops, map_graphs
from ..transform.infer_type import infer_module, infer_type
from ..transform.normal_form import has_cells, to_basic_block_normal_form
from ..transform.plan_devices import ON_HOST
from ..ty import Any as AnySize
from ..ty import TensorType, TupleType, is_dynamic, tensor_fields
from .assemble import about_units, launches, machine_of
from .external import CodeGenerators, call_in_place, external_job, is_external
from .kernel import Kernel, job_of, settings_of_now
from .lower import lift_constants
from .memory_plan import round_up
from .recurring import versions_of
from .single import linked
from .te_compiler import compile_all
from .vm_cases import Case
from .vm_emit import Emitter, PendingOpen, PendingRun
from .vm_tidy import FIELDS, tidy
from .weights import Packers
from .work import roof_of

_SMALL = 64  # most elements of a tensor of sizes, which may determine the shape of a result


def compile_program(mod: IRModule, target: Any) -> CompiledExecutable:
    """An executable of a module's functions."""
    from ..build_module import as_target

    chosen = as_target(target)
    context = PassContext.current()
    with deep_programs(), chosen:
        typed = infer_module(mod)
        assembly = to_compile(typed, chosen)
        assembly.compile([None])
        made = CompiledExecutable(assembly, context)
        if assembly.host.llvm.is_host:
            keys = [j.key for j in assembly.jobs.values()]
            made.versions = versions_of(typed, chosen, settings_of_now(chosen), keys)
        return made


def to_compile(mod: IRModule, target: Target) -> _Assembly:
    """The program of a module's functions, and the kernels that are to be compiled for it."""
    if target.kind.family not in ("cpu", "gpu"):
        raise BuildError(
            f"the virtual machine runs on CPUs and GPUs, not on {target.kind.name!r}: for that, models of known sizes "
            "without branches and loops are compiled by relay.build"
        )
    typed = infer_module(mod)
    emitter = Emitter(_fused(typed, PassContext.current()))
    emitter.run()
    return _Assembly(emitter, target, interface_of(typed))


def optimized(mod: IRModule, target: Any) -> IRModule:
    """The module as it is compiled: after all passes, in basic blocks, its operators in functions for kernels."""
    from ..build_module import as_target

    chosen = as_target(target)
    with deep_programs(), chosen:
        return _fused(mod, PassContext.current())


def _fused(mod: IRModule, context: PassContext) -> IRModule:
    from ..build_module import pipeline

    placed = call_in_place(infer_module(mod))
    typed = CheckData()(FoldSizes()(pipeline()(infer_module(_with_named_sizes(placed)))))
    ordered = any(has_cells(f) for f in typed.functions.values() if isinstance(f, Function))
    blocks = infer_module(map_graphs(typed, lambda f: to_basic_block_normal_form(f, ordered)))
    depth = int(context.option("relay.FuseOps.max_depth"))
    return infer_module(map_graphs(blocks, lambda f: fuse_ops(f, context.opt_level, depth)))


def _with_named_sizes(mod: IRModule) -> IRModule:
    """`main` with a symbolic variable for each dynamic size of its parameters, so that passes can track them."""
    main = next((gv for gv in mod.functions if gv.name_hint == "main"), None)
    if main is None or not isinstance(mod[main], Function):
        return mod
    fn = mod[main]
    called = any(e is main for f in mod.functions.values() if isinstance(f, Function) for e in post_order(f))
    if called or not any(_has_any(p.checked_type) for p in fn.params):
        return mod
    params = [Var(p.name_hint, _named(p.checked_type, p.name_hint), span=p.span) for p in fn.params]
    body: Any = bind(fn.body, dict(zip(fn.params, params, strict=True)))
    made = mod.clone()
    made[main] = Function(params, body, None, fn.type_params, fn.attrs, fn.span)
    return made


def _has_any(kind: Any) -> bool:
    if isinstance(kind, TupleType):
        return any(map(_has_any, kind.fields))
    return isinstance(kind, TensorType) and any(isinstance(d, AnySize) for d in kind.shape)


def _named(kind: Any, name: str) -> Any:
    if isinstance(kind, TupleType):
        return TupleType(tuple(_named(f, f"{name}_{i}") for i, f in enumerate(kind.fields)))
    if not isinstance(kind, TensorType):
        return kind
    dims = [
        SizeVar(f"{name}_{i}", "int32") if isinstance(d, AnySize) else d for i, d in enumerate(kind.shape)
    ]
    return TensorType(dims, kind.dtype)


class _Assembly:
    """Compiles the kernels that instructions call, and completes the instructions.

    Kernels for sizes that may never occur (a batch other than 1, broadcasts) are compiled at their first call, with all
    that belong to the same case.
    """

    def __init__(self, emitter: Emitter, target: Target, interface: Interface) -> None:
        self.emitter, self.target, self.interface = emitter, target, interface
        self.host = target if target.is_cpu else Target("llvm")
        self.kernels: dict[str, Kernel] = {}
        self.failed: dict[str, TVMError] = {}
        self.ready: set[Any] = set()  # groups whose kernels are compiled
        self.groups: list[Any] = list(dict.fromkeys(p.group for p in emitter.pending))
        self.jobs: dict[int, Any] = {}
        self.generators = CodeGenerators()
        for p in emitter.pending:
            places = [k for k, a in enumerate(p.args) if isinstance(a, Constant)]
            places += range(len(p.args), len(p.args) + len(p.case.arrays))
            if is_external(p.case.fn):
                self.generators.generated(p.case.fn)  # now, although its kernel may be compiled later
                self.jobs[id(p)] = external_job(p.case.fn)
            else:
                fn = p.case.fn
                if not target.is_cpu and _is_of_sizes(p.case):
                    fn = fn.with_attr(ON_HOST, 1)
                self.jobs[id(p)] = job_of(fn, places, target)
        self.order: dict[str, int] = {}  # kernels by symbol, as the program numbers them
        self.arrays: dict[int, int] = {}
        self.constants: list[NDArray] = []
        self.packed: dict[Any, dict[str, NDArray]] = {}
        self.opens: list[PendingOpen] = []
        self._modules: dict[str, Module] = {}

    def compile(self, groups: Sequence[Any]) -> None:
        """Compile the kernels of some groups."""
        wanted = [self.jobs[id(p)] for p in self.emitter.pending if p.group in groups]
        wanted = [j for j in wanted if j.key not in self.kernels and j.key not in self.failed]
        made = self.generators.kernels([j for j in wanted if j.external], self.target)
        wanted = [j for j in wanted if not j.external]
        made |= compile_all(wanted, self.target, self.failed) if wanted else {}
        self.kernels.update(made)
        if made:
            unique = {k.symbol: k for k in made.values()}
            module = self.library(list(unique.values()))
            launched = launching(module) or module
            self._modules.update((s, module if k.device is None else launched) for s, k in unique.items())
        self.packers = Packers({k.symbol: k for k in self.kernels.values()})
        self.ready.update(groups)

    def native(self, symbol: str) -> Any:
        return self._modules[symbol].get_function(symbol)

    def program(self, saved: bool = False) -> Program:
        """The functions with the compiled kernels; a program to save has none that are compiled when it runs."""
        self.saved = saved
        self.order, self.arrays, self.constants, self.opens = {}, {}, [], []
        functions = []
        for f in self.emitter.functions:
            assert f is not None
            functions.append(
                FunctionCode(f.name, f.params, f.captures, tidy(self.completed(f.body), f.captures))
            )
        constants = [(c.dtype, c.shape) for c in self.constants]
        work = [None if k.work is None else parse_work(k.work, k.symbol) for k in self.used()]
        nodes = {site_of(p.function, p.outs): p.nodes for p in self.emitter.pending if p.nodes}
        roof = parse_roof(roof_of(self.target))
        kind = "cpu" if self.target.is_cpu else self.target.kind.name
        return Program(functions, list(self.order), constants, self.interface, kind, nodes, work, roof)

    def used(self) -> list[Kernel]:
        """The kernels that the program calls."""
        by_symbol = {k.symbol: k for k in self.kernels.values()}
        return [by_symbol[s] for s in self.order]

    def library(self, kernels: Sequence[Kernel]) -> LinkedModule:
        units = [k.code for k in kernels if k.device is None]
        codes = [k.device for k in kernels if k.device is not None]
        about = {**about_units(units, self.target, self.host), "entry": None}
        if codes:
            about[LAUNCHES] = launches(codes, self.target)
        native = self.host.llvm.is_host
        made = LinkedModule(units, machine_of(self.host), about, native=native, name="vm")
        if codes:
            from .device_kernel import merged  # GPU code is imported on demand

            made.import_module(merged(codes, self.target))
        attach(made, [k.external for k in kernels if k.external is not None])
        return made

    def completed(self, body: list[Any]) -> list[Any]:
        """A block with its pending instructions completed."""
        out: list[Any] = []
        for i in body:
            if i[0] == "run":
                out.append(self.run(i[1], self.jobs[id(i[1])]))
            elif i[0] == "open":
                out.append(self.open(i[1]))
            elif i[0] == "if":
                cond = (
                    [i[1][0], self.operand(i[1][1]), i[1][2]]
                    if isinstance(i[1], list)
                    else self.operand(i[1])
                )
                out.append(["if", cond, *(self.completed(side) for side in i[2:])])
            elif i[0] == "switch":
                kept = [row for row in i[1] if not (self.saved and _is_spare(row[1]))]
                rows = [[pairs, self.completed(side)] for pairs, side in kept]
                left_out = f" (saved for {len(rows)} relations of sizes)" if len(rows) < len(i[1]) else ""
                out.append(["switch", rows, i[2] + left_out])
            else:
                out.append(self.with_constants(i))
        return out

    def with_constants(self, i: list[Any]) -> list[Any]:
        """An instruction with its constants renumbered: only used ones are kept."""
        number: dict[str, Callable[[Any], Any]] = {"x": self.operand, "xs": self.operands, "c": self.captured}
        return [i[0], *(number[k](v) if k in number else v for k, v in zip(FIELDS[i[0]], i[1:], strict=True))]

    def captured(self, captured: list[Any]) -> list[Any]:
        return [["r", self.operand(c[1])] if c[0] == "r" else c for c in captured]

    def operands(self, xs: Sequence[int]) -> list[int]:
        return [self.operand(x) for x in xs]

    def operand(self, x: int) -> int:
        return x if x >= 0 else self.constant(self.emitter.arrays[-x - 1])

    def constant(self, data: NDArray) -> int:
        found = self.arrays.get(id(data))
        if found is None:
            found = self.arrays[id(data)] = len(self.constants)
            self.constants.append(data)
        return -found - 1

    def run(self, p: PendingRun, job: Any) -> list[Any]:
        """A call of a kernel; if it could not be compiled, one that is compiled at run time for concrete sizes."""
        if p.group not in self.ready:
            return ["missing", self.groups.index(p.group), [r for r, _, _ in p.outs]]
        kernel = self.kernels.get(job.key)
        if kernel is None:
            error = self.failed[job.key]
            if not any(isinstance(d, str) for dims in p.inputs for d in dims) and not p.extras:
                raise error
            arrays = [
                self.constant(a.data) if isinstance(a, Constant) else a for a in (*p.args, *p.case.arrays)
            ]
            kinds = [q.checked_type for q in p.case.fn.params]
            return self.open(PendingOpen(p.case.fn, arrays, [r for r, _, _ in p.outs], kinds))
        number = self.order.setdefault(kernel.symbol, len(self.order))
        about = kernel.about
        if kernel.device is None:
            (about,) = [f for f in kernel.code.functions if f["name"] == kernel.symbol]
        given = [
            (self.constant(x.data) if isinstance(x, Constant) else self.operand(x), dims)
            for x, dims in zip(p.args, p.inputs, strict=True)
            if kernel.compiler or not isinstance(x, Constant)
        ]
        args: list[Any] = [x for x, _ in given]
        args += [["o", k] for k in range(len(p.outs))]
        args += [["n", d] for d in p.extras]
        if not kernel.compiler:
            args += self.weights(kernel, [a for a in (*p.args, *p.case.arrays) if isinstance(a, Constant)])
        shapes = [dims for _, dims in given] + [dims for _, _, dims in p.outs]
        symbols = [_source(about["params"], s["name"], shapes) for s in about["symbols"]]
        return ["run", number, args, p.outs, symbols]

    def weights(self, kernel: Kernel, constants: list[Constant]) -> list[int]:
        """The operands of a kernel's constants."""
        given = {name: c.data for name, c in zip(kernel.constants, constants, strict=True)}
        if kernel.before is not None:
            key = (kernel.symbol, *(id(c.data) for c in constants))
            if key not in self.packed:
                self.packed[key] = self.packers.run(kernel.before, given)
            given.update(self.packed[key])
        return [self.constant(given[name]) for name in kernel.labels]

    def open(self, p: PendingOpen) -> list[Any]:
        self.opens.append(p)
        return ["open", len(self.opens) - 1, self.operands(p.args), p.outs]


def _is_of_sizes(case: Case) -> bool:
    """Whether a kernel computes a few integers from a few others. In a program for a device the host runs it: they are
    likely to be sizes and conditions, which the host reads."""
    held = [t for p in case.fn.params for t in tensor_fields(p.checked_type)]
    return all(
        ("int" in str(t.dtype) or str(t.dtype) == "bool")
        and all(isinstance(d, int) for d in t.shape)
        and math.prod(t.shape) <= _SMALL
        for t in (*held, *case.outs)
    )


def _is_spare(side: list[Any]) -> bool:
    """Whether a block is for relations of sizes that are rare, which are compiled when they occur."""
    return len(side) == 1 and side[0][0] == "open" and side[0][1].spare


def _source(params: Sequence[Any], name: str, shapes: list[list[Any]]) -> Any:
    """The dimension that gives a kernel's size."""
    for p, dims in zip(params, shapes, strict=False):
        for at, d in enumerate(p.get("shape", ())):
            if d == name:
                return dims[at]
    raise BuildError(f"a kernel's size {name} is not one of its dimensions")


class CompiledExecutable(Executable):
    """An executable with access to the compiler: it compiles kernels for concrete sizes, and exports."""

    lib: LinkedModule

    def __init__(self, assembly: _Assembly, context: PassContext) -> None:
        self.assembly, self.target, self.context = assembly, assembly.target, context
        program = assembly.program()
        super().__init__(program, assembly.constants, assembly.library(()), self._run_open)
        self._ready: dict[Any, Callable[[list[NDArray]], list[NDArray]]] = {}
        self._lock = new_in_child(threading.RLock())

    @property
    def opens(self) -> list[PendingOpen]:
        return self.assembly.opens

    def native(self, symbol: str) -> Any:
        return self.assembly.native(symbol)

    def compile_missing(self, number: int) -> None:
        self._compile([self.assembly.groups[number]])

    def _compile(self, groups: Sequence[Any]) -> None:
        with self._lock, deep_programs(), self.target, self.context:
            left = [g for g in groups if g not in self.assembly.ready]
            if left:
                self.assembly.compile(left)
                program = self.assembly.program()
                self.constants, self.program = self.assembly.constants, program

    @contextmanager
    def _to_save(self) -> Iterator[None]:
        """With all pending kernels compiled, and none that are compiled when the program runs."""
        self._compile(self.assembly.groups)
        self.program = self.assembly.program(saved=True)
        self.constants = self.assembly.constants
        try:
            self.refuse_open()
            self.lib = self.assembly.library(self.assembly.used())
            yield
        finally:
            self.program = self.assembly.program()
            self.constants = self.assembly.constants

    def save(self) -> tuple[bytearray, Module]:
        if not self.target.is_cpu:
            raise TVMError(
                "save: code and library are apart for programs of CPUs; write a program for "
                f"{self.target.kind.name} as one file, with export_library"
            )
        with self._to_save():
            return super().save()

    def open_names(self) -> list[str]:
        return sorted({_operators(p.fn) for p in self.opens})

    def _run_open(self, number: int, tensors: list[NDArray]) -> list[NDArray]:
        key = (number, *((t.shape, t.dtype) for t in tensors), *_contents(tensors))
        found = self._ready.get(key)
        if found is None:
            host = self.assembly.host  # of a device, too: tensors are copied
            with deep_programs(), host, self.context:
                found = self._ready[key] = _specialised(self.opens[number], tensors, host)
        return found(tensors)

    def export_library(self, file_name: str | os.PathLike[str], **linking: Any) -> str:
        """Write program, kernels, constants and thread pool as one library; see `Module.export_library`."""
        with self._to_save():
            return self._export(os.fspath(file_name), **linking)

    def _export(self, file_name: str, **linking: Any) -> str:
        offsets, size = [], 0
        for c in self.constants:
            offsets.append(size)
            size += round_up(c.nbytes)
        size = max(64, size)
        whole = np.zeros(size, np.uint8)
        for c, at in zip(self.constants, offsets, strict=True):
            kind = ELEMENTS[c.dtype]
            whole[at : at + c.nbytes].view(kind.numpy).reshape(c.shape)[...] = np.asarray(c)
        symbol = "tvmgen_vm_constants"
        about = dict(self.lib.description)
        about[VM] = {"program": self.program.data(), "symbol": symbol, "bytes": size, "offsets": offsets}
        data = {symbol: whole}
        if LAUNCHES not in about:
            return self.lib.export_with((), file_name, description=about, data=data, **linking)
        held = [m.described() for m in self.lib.imported_modules if isinstance(m, DeviceModule)]
        about[LAUNCHES] = {**about[LAUNCHES], DEVICES: held}
        return self.lib.export_with(
            (), file_name, description=about, data=data, header=lambda _: "", **linking
        )


# ---------------------------------------------------------------------------- compiled for concrete sizes
def _specialised(
    p: PendingOpen, tensors: list[NDArray], target: Target
) -> Callable[[list[NDArray]], list[NDArray]]:
    """A kernel for arguments of these sizes, and of these values if they determine the sizes of results."""
    leaves = iter(tensors)
    kinds = [_kind_of(q.checked_type, leaves) for q in p.fn.params]
    made = _typed(p.fn, kinds)
    known: list[int] = []
    if is_dynamic(made.checked_type.ret_type):
        made, known = _with_values(made, tensors)
    made, arrays = lift_constants(made)
    count = len(tensors) - len(known)
    job = job_of(made, range(count, count + len(arrays)), target)
    kernel = compile_all([job], target)[job.key]
    given = {name: c.data for name, c in zip(kernel.constants, arrays, strict=True)}
    if kernel.before is not None:
        given.update(Packers({kernel.symbol: kernel}).run(kernel.before, given))
    constants = [given[name] for name in kernel.labels]
    function, outs = linked(kernel), tensor_fields(made.checked_type.ret_type)
    dropped = frozenset(known)

    def run(args: list[NDArray]) -> list[NDArray]:
        results = [empty(k.shape, str(k.dtype)) for k in outs]
        function(*(a for i, a in enumerate(args) if i not in dropped), *results, *constants)
        return results

    return run


def _typed(fn: Function, kinds: Sequence[Any]) -> Function:
    """The fused function for these types, with symbolic sizes in its attributes replaced."""
    from ..sizes import retyped

    found: dict[Any, Any] = {}
    for p, kind in zip(fn.params, kinds, strict=True):
        for a, b in zip(tensor_fields(p.checked_type), tensor_fields(kind), strict=True):
            found.update((d, n) for d, n in zip(a.shape, b.shape, strict=True) if isinstance(d, SizeVar))
    return infer_type(retyped(fn, kinds, found))


def _kind_of(kind: Any, leaves: Any) -> Any:
    if isinstance(kind, TupleType):
        return TupleType(tuple(_kind_of(f, leaves) for f in kind.fields))
    t = next(leaves)
    return TensorType(t.shape, t.dtype)


def _with_values(fn: Function, tensors: list[NDArray]) -> tuple[Function, list[int]]:
    """The function with small integer tensors as constants: they may be sizes."""
    from ..transform import DynamicToStatic

    flat = all(isinstance(p.checked_type, TensorType) for p in fn.params)
    sizes = {p: const(a) for p, a in zip(fn.params, tensors, strict=False) if flat and _is_sizes(a)}
    if sizes:
        bound: Any = bind(fn, sizes)
        mod = DynamicToStatic()(infer_module(IRModule({"main": Function(bound.params, bound.body)})))
        main = infer_type(infer_module(mod)["main"].with_attr("Primitive", 1))
        if not is_dynamic(main.checked_type.ret_type):
            return main, [i for i, p in enumerate(fn.params) if p in sizes]
    raise BuildError(
        f"the size of the result of {_operators(fn)} depends on values, and it has no shape function"
    )


def _operators(fn: Function) -> str:
    return ", ".join(e.op.name for e in post_order(fn) if isinstance(e, Call) and isinstance(e.op, RelayOp))


def _is_sizes(value: NDArray) -> bool:
    return value.dtype in ("int32", "int64") and value.size <= _SMALL


def _contents(tensors: list[NDArray]) -> list[bytes]:
    """The values of small integer tensors, which kernels may be specialized for."""
    return [t.numpy().tobytes() for t in tensors if _is_sizes(t)]


def __getattr__(name: str) -> Any:
    """The classic names of this module, which `relay.vm` and `evaluate` define."""
    if name in ("VMCompiler", "compile"):
        from .. import vm as front

        return getattr(front, name)
    if name == "VMExecutor":
        from .evaluate import VMExecutor

        return VMExecutor
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
