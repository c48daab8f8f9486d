"""Verifiers: well-formedness, single assignment, and the limits of a device."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ...homes import home_of
from ...ir.expr import BufferLoad, IterVar, Let, Var, const_value
from ...ir.function import PrimFunc
from ...ir.functor import Visitor, undefined_vars
from ...ir.module import IRModule
from ...ir.stmt import (
    Allocate,
    AllocateConst,
    AttrStmt,
    Block,
    BlockRealize,
    BufferStore,
    For,
    ForKind,
    LetStmt,
)
from .measure import bytes_of, scope_of


def _functions(func_or_mod: Any) -> list[PrimFunc]:
    if isinstance(func_or_mod, IRModule):
        return [f for f in func_or_mod.functions.values() if isinstance(f, PrimFunc)]
    return [func_or_mod]


# ---------------------------------------------------------------------------- definitions
class _Definitions(Visitor):
    """Calls `define` with every variable at its definition."""

    def __init__(self, define: Callable[[Var], None]) -> None:
        self.define = define

    def visit_For(self, n: For) -> None:
        self.define(n.loop_var)
        self.visit_children(n)

    def visit_LetStmt(self, n: LetStmt | Let) -> None:
        self.define(n.var)
        self.visit_children(n)

    visit_Let = visit_LetStmt

    def visit_Allocate(self, n: Allocate | AllocateConst) -> None:
        self.define(n.buffer_var)
        self.visit_children(n)

    visit_AllocateConst = visit_Allocate

    def visit_Block(self, n: Block) -> None:
        for iv in n.iter_vars:
            self.define(iv.var)
        for b in n.alloc_buffers:
            self.define(b.data)
        self.visit_children(n)


def verify_ssa(func: PrimFunc) -> bool:
    """Whether every variable is defined once. A hardware axis may be named again: it is one axis."""
    seen: set[Var] = set()
    twice: list[Var] = []

    def define(v: Var) -> None:
        if v in seen:
            twice.append(v)
        seen.add(v)

    for p in func.params:
        define(p)
    _Definitions(define).visit(func.body)
    return not twice


# ---------------------------------------------------------------------------- well-formedness
class _BlockScope(Visitor):
    """Finds blocks that use loop variables from outside instead of their own iterators."""

    def __init__(self) -> None:
        self.outside: set[Var] = set()
        self.loops: list[Var] = []
        self.problems: list[str] = []
        self.block = ""

    def visit_Var(self, n: Var) -> None:
        if n in self.outside:
            self.problems.append(
                f"block {self.block} uses the loop variable {n.name} of a loop around it; "
                "bind a block iterator to it instead"
            )

    def visit_For(self, n: For) -> None:
        self.visit(n.min)
        self.visit(n.extent)
        self.loops.append(n.loop_var)
        self.visit(n.body)
        self.loops.pop()

    def visit_BlockRealize(self, n: BlockRealize) -> None:
        for v in (*n.iter_values, n.predicate):
            self.visit(v)
        held, loops, block = self.outside, self.loops, self.block
        opaque = not n.block.iter_vars  # such a block may use the loops around it
        if not opaque:
            self.outside, self.loops = held | set(loops), []
            self.block = n.block.name_hint
        self.visit(n.block)
        self.outside, self.loops, self.block = held, loops, block


def _problems(func: PrimFunc) -> list[str]:
    found = [f"variable {v.name} is used and nothing defines it" for v in undefined_vars(func)]
    walk = _BlockScope()
    walk.visit(func.body)
    found += walk.problems
    if not verify_ssa(func):
        found.append("a variable is defined twice; run ConvertSSA")
    return found


def verify_well_formed(func_or_mod: Any, assert_mode: bool = True) -> bool:
    """Whether every used variable is defined exactly once, and blocks use loops only through iterators.

    With `assert_mode` a program that is not well-formed raises ValueError with the reasons.
    """
    for func in _functions(func_or_mod):
        found = _problems(func)
        if found:
            if assert_mode:
                name = func.attrs.get("global_symbol", "the function")
                raise ValueError(f"{name} is not well-formed:\n" + "\n".join(f"  - {p}" for p in found))
            return False
    return True


# ---------------------------------------------------------------------------- memory
class _HostAccess(Visitor):
    """Accesses to a parameter's memory from outside of any kernel."""

    def __init__(self, params: set[Var]) -> None:
        self.params = params
        self.found: list[str] = []

    def _access(self, n: BufferLoad | BufferStore) -> None:
        if n.buffer.data in self.params:
            self.found.append(n.buffer.name)
        self.visit_children(n)

    visit_BufferLoad = visit_BufferStore = _access

    def visit_AttrStmt(self, n: AttrStmt) -> None:
        if n.attr_key not in ("thread_extent", "pipeline_exec_scope"):
            self.visit_children(n)

    def visit_For(self, n: For) -> None:
        if n.kind is not ForKind.THREAD_BINDING:
            self.visit_children(n)


def verify_memory(func: PrimFunc) -> bool:
    """Whether host code does not access device memory; always true for a CPU target."""
    target = func.attrs.get("target")
    if target is None or not home_of("targets").Target(target).is_gpu:
        return True
    walk = _HostAccess({b.data for b in func.buffer_map.values()} | set(func.params))
    walk.visit(func.body)
    return not walk.found


# ---------------------------------------------------------------------------- a GPU's limits
class _Kernels(Visitor):
    """Sizes of each kernel, compared with the limits at its end."""

    def __init__(self, limits: Mapping[str, int]) -> None:
        self.limits = limits
        self.kernels = 0
        self.ok = True
        self.nest = 0
        self.reset()

    def reset(self) -> None:
        self.local = self.shared = 0
        self.threads = self.vthreads = 1
        self.axes: dict[str, int] = {}

    def limit(self, name: str, value: int) -> None:
        allowed = self.limits.get(name)
        if allowed is not None and value > int(allowed):
            self.ok = False

    def axis(self, tag: str, extent: Any) -> None:
        size = const_value(extent)
        if size is None:
            if not tag.startswith("blockIdx"):
                self.ok = False
            return
        if tag.startswith(("vthread", "cthread")):
            self.vthreads *= int(size)
        elif tag.startswith("threadIdx") and tag not in self.axes:
            self.axes[tag] = int(size)
            self.threads *= int(size)
            self.limit(f"max_thread_{tag[-1]}", int(size))
        elif self.axes.get(tag, size) != size:
            self.ok = False

    def visit_AttrStmt(self, n: AttrStmt) -> None:
        if n.attr_key not in ("thread_extent", "virtual_thread") or not isinstance(n.node, IterVar):
            self.visit_children(n)
            return
        tag = n.node.thread_tag or n.node.var.name
        self.in_kernel(tag if n.attr_key == "thread_extent" else "vthread", n.value, n)

    def visit_For(self, n: For) -> None:
        if n.kind is ForKind.THREAD_BINDING and n.thread_binding is not None:
            self.in_kernel(n.thread_binding.thread_tag, n.extent, n)
            return
        self.visit_children(n)

    def in_kernel(self, tag: str, extent: Any, n: Any) -> None:
        if self.nest == 0:
            self.reset()
            self.kernels += 1
            self.limit("max_kernels", self.kernels)
        self.nest += 1
        self.axis(tag, extent)
        self.visit_children(n)
        self.nest -= 1
        if self.nest == 0:
            self.limit("max_threads_per_block", self.threads)
            self.limit("max_vthread", self.vthreads)
            self.limit("max_local_memory_per_block", self.local)
            self.limit("max_shared_memory_per_block", self.shared)

    def visit_Allocate(self, n: Allocate) -> None:
        self.allocate(scope_of(n.buffer_var), bytes_of(n.dtype, n.extents) or 0)
        self.vector(n.dtype)
        self.visit_children(n)

    def visit_Block(self, n: Block) -> None:
        for b in n.alloc_buffers:
            self.allocate(b.scope_name, bytes_of(b.dtype, b.shape) or 0)
        self.visit_children(n)

    def allocate(self, scope: str, size: int) -> None:
        if scope == "local":
            self.local += size
        elif scope.startswith("shared"):
            self.shared += size

    def vector(self, dtype: Any) -> None:
        if dtype.is_vector:
            self.limit("max_vector_bytes", dtype.nbytes)

    def visit_BufferLoad(self, n: BufferLoad) -> None:
        self.vector(n.dtype)
        self.visit_children(n)

    def visit_BufferStore(self, n: BufferStore) -> None:
        self.vector(n.value.dtype)
        self.visit_children(n)


def verify_gpu_code(func: PrimFunc, constraints: Mapping[str, int]) -> bool:
    """Whether every kernel keeps within limits such as max_threads_per_block and max_shared_memory_per_block.

    Known are also max_local_memory_per_block (in bytes), max_thread_x, _y and _z, max_vthread,
    max_vector_bytes and max_kernels.
    """
    walk = _Kernels({k: int(v) for k, v in constraints.items()})
    walk.visit(func.body)
    return walk.ok
