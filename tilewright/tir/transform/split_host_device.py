"""Kernels separated from the functions that launch them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ...ir.errors import LoweringError
from ...ir.expr import BufferLoad, Call, IntImm, IterVar, Let, PrimExpr, Range, Var, const, const_value
from ...ir.function import CallingConv, PrimFunc
from ...ir.functor import pre_order, rewrite, statements, substitute, written_out
from ...ir.module import GlobalVar, IRModule
from ...ir.printer_names import free_name
from ...ir.stmt import (
    Allocate,
    AllocateConst,
    AssertStmt,
    AttrStmt,
    BufferStore,
    DeclBuffer,
    Evaluate,
    For,
    ForKind,
    IfThenElse,
    LetStmt,
    SeqStmt,
    Stmt,
    While,
    seq,
)
from ..analysis.measure import bytes_of, scope_of

LAUNCH_PARAMS = "tir.kernel_launch_params"
OFFSET = (
    "tilewright.dynamic_shared_offset"  # annotation of an allocation: its offset in dynamic shared memory
)
DYNAMIC_SHARED = "tir.use_dyn_shared_memory"
CLUSTER = "clusterCtaIdx.x"  # the blocks of a cluster, which can read each other's shared memory
_AXES = (*(f"{what}.{axis}" for what in ("blockIdx", "threadIdx") for axis in "xyz"), CLUSTER)
_ALIGNED = 128  # alignment of allocations in dynamic shared memory, in bytes
_SWIZZLED = 1024  # alignment of those that TMA fills
_DYNAMIC = ("shared.dyn", "shared.async")


class KernelLimits:
    """The limits of a thread block on a target; None where unknown."""

    def __init__(
        self,
        target: str = "the target",
        threads: int | None = None,
        shared: int | None = None,
        dynamic_shared: int | None = None,
        axes: dict[str, int] | None = None,
    ) -> None:
        self.target, self.threads, self.shared = target, threads, shared
        self.dynamic_shared = dynamic_shared
        self.axes = axes or {}  # the greatest extent of each axis


def split_host_device(mod: IRModule, limits: KernelLimits | None = None) -> IRModule:
    """Make each outermost region of threads a function of its own, which its function launches.

        def main(A, B):                               def main_kernel(A, B, n):
            cse = (n + 63) // 64                          with launch_thread("blockIdx.x", (n + 63) // 64) …
            with launch_thread("blockIdx.x", cse):        B[…] = A[…]
                with launch_thread("threadIdx.x", 64):
                    B[…] = A[…]                 ->    def main(A, B):
                                                          cse = (n + 63) // 64
                                                          main_kernel(A, B, n, cse, 64)

    The call's last arguments are the extents of the axes that `tir.kernel_launch_params` names, and the bytes
    of dynamic shared memory where it names that. Bindings and conditions that read memory move into the
    kernels: the host cannot access device memory. With `limits` the whole module is for the device.
    Needs: flat loops with barriers. Gives: no threads outside of kernels, and in functions with kernels no
    accesses to memory.
    """
    out: dict[Any, Any] = {}
    taken = {gv.name_hint for gv in mod.functions}
    for gv, func in mod.functions.items():
        cut = (
            isinstance(func, PrimFunc) and func.attrs.get("calling_conv") != CallingConv.DEVICE_KERNEL_LAUNCH
        )
        if not cut or (limits is None and not _has_threads(func.body)):
            out[gv] = func
            continue
        name = str(func.attrs.get("global_symbol", gv.name_hint))
        split = _Split(func, name, limits or KernelLimits(), taken)
        out[gv] = func.replace(body=split.host(func.body, ()))
        out.update(split.kernels)
    same = len(out) == len(mod.functions) and all(out[gv] is f for gv, f in mod.functions.items())
    return mod if same else IRModule(out, mod.type_definitions, mod.attrs)


def _has_threads(body: Stmt) -> bool:
    return any(isinstance(m, AttrStmt) and m.attr_key == "thread_extent" for m in statements(body))


_Wrap = Callable[[Stmt], Stmt]


class _Split:
    def __init__(self, func: PrimFunc, name: str, limits: KernelLimits, taken: set[str]) -> None:
        self.func, self.name, self.limits, self.taken = func, name, limits, taken
        self.kernels: dict[GlobalVar, PrimFunc] = {}
        self.lets: dict[Var, PrimExpr] = {}
        # Variables that the host does not know, because they come from device memory.
        self.unknown: set[Var] = set()

    # -- the host's part -----------------------------------------------------------------------
    def host(self, n: Stmt, sunk: tuple[_Wrap, ...]) -> Stmt:
        """The host part of a statement; `sunk` goes around the kernels in it."""
        if isinstance(n, AttrStmt):
            if n.attr_key == "thread_extent":
                return self.launch(n, sunk)
            return self.host(n.body, sunk)
        if isinstance(n, SeqStmt):
            return seq(*(self.host(s, sunk) for s in n.seq))
        if isinstance(n, DeclBuffer):
            return self.host(n.body, sunk)
        if isinstance(n, Allocate):
            return n.replace(body=self.host(n.body, sunk))
        if isinstance(n, AllocateConst):
            return self.host(n.body, (*sunk, lambda body: n.replace(body=body)))
        if isinstance(n, LetStmt):
            if self.reads(n.value):
                self.check_unchanged(n.value, n.body)
                self.unknown.add(n.var)
                return self.host(n.body, (*sunk, lambda body: n.replace(body=body)))
            self.lets[n.var] = n.value
            return n.replace(body=self.host(n.body, sunk))
        if isinstance(n, IfThenElse):
            return self.branch(n, sunk)
        if isinstance(n, For) and not self.reads(n.min) and not self.reads(n.extent):
            return n.replace(body=self.host(n.body, sunk), kind=ForKind.SERIAL, annotations={})
        if isinstance(n, AssertStmt) and not self.reads(n.condition):
            return n.replace(body=self.host(n.body, sunk))
        if isinstance(n, Evaluate) and isinstance(n.value, IntImm):
            return n
        raise self.outside(n)

    def reads(self, e: PrimExpr) -> bool:
        """Whether a value depends on memory of the device."""
        return any(isinstance(m, BufferLoad) or m in self.unknown for m in pre_order(e))

    def check_unchanged(self, e: PrimExpr, body: Stmt) -> None:
        """Refuse if a kernel writes memory that a binding which moves into a later kernel reads."""
        read = {m.buffer.data: m.buffer.name for m in pre_order(e) if isinstance(m, BufferLoad)}
        for m in pre_order(body):
            if isinstance(m, BufferStore) and m.buffer.data in read:
                raise LoweringError(
                    f"{self.name}: `{e}` is read before kernels that write {read[m.buffer.data]}, where the host "
                    "runs and cannot access device memory; read it in the kernel that needs it"
                )

    def branch(self, n: IfThenElse, sunk: tuple[_Wrap, ...]) -> Stmt:
        if not self.reads(n.condition):
            other = None if n.else_case is None else self.host(n.else_case, sunk)
            return n.replace(then_case=self.host(n.then_case, sunk), else_case=other)
        if n.else_case is not None:
            raise self.outside(n)
        self.check_unchanged(n.condition, n.then_case)
        return self.host(n.then_case, (*sunk, lambda body: IfThenElse(n.condition, body)))

    def outside(self, n: Stmt) -> LoweringError:
        """Refuse a statement outside of kernels that must run on the device."""
        if isinstance(n, BufferStore):
            what, remedy = f"{n.buffer.name} is written", "bind a loop around it to a thread axis"
        elif isinstance(n, (For, While, IfThenElse)):
            what, remedy = (
                f"a {_KIND[n.__class__.__name__]} depends on device memory",
                "bind a loop around it",
            )
        else:
            what, remedy = f"`{_first_line(n)}` stands", "call it from a function of its own"
        return LoweringError(f"{self.name}: {what} outside of every kernel, where the host runs; {remedy}")

    # -- the device's part ---------------------------------------------------------------------
    def launch(self, n: AttrStmt, sunk: tuple[_Wrap, ...]) -> Stmt:
        extents = self.extents(n)
        body: Stmt = rewrite(n, {AttrStmt: lambda a: _with_extent(a, self.expanded)})
        for wrap in reversed(sunk):
            body = wrap(body)
        taken = self.kernel_name()
        shared, offsets, dynamic = self.shared_memory(n, taken)
        self.check(taken, extents, shared, dynamic)
        if offsets:
            body = rewrite(body, {Allocate: lambda a: _at_offset(a, offsets)})
        params = _parameters(body)
        tags = [*extents, *([DYNAMIC_SHARED] if dynamic else [])]
        threads = [const_value(e) for tag, e in extents.items() if tag.startswith("threadIdx")]
        attrs: dict[str, Any] = {
            "global_symbol": taken,
            "calling_conv": int(CallingConv.DEVICE_KERNEL_LAUNCH),
            "tir.is_global_func": True,
            LAUNCH_PARAMS: tags,
            "tir.noalias": bool(self.func.attrs.get("tir.noalias", False)),
        }
        if CLUSTER in extents:
            attrs["tilewright.blocks_per_cluster"] = self.cluster(taken, extents[CLUSTER])
        if None not in threads:
            attrs["tilewright.threads_per_block"] = math.prod(int(t or 1) for t in threads)
        gv = GlobalVar(taken)
        self.kernels[gv] = PrimFunc(params, body, attrs=attrs)
        sizes = [*extents.values(), *([const(dynamic)] if dynamic else [])]
        return Evaluate(Call("int32", gv, [*params, *sizes]))

    def cluster(self, kernel: str, extent: PrimExpr) -> int:
        """The number of blocks of a cluster, which the kernel is compiled for."""
        size = const_value(extent)
        if size is None:
            raise LoweringError(
                f"{kernel}: a cluster has {extent} blocks ({CLUSTER}), and their number must be a constant; split off "
                "a loop of constant extent, and bind that"
            )
        return int(size)

    def expanded(self, e: PrimExpr) -> PrimExpr:
        """An expression in terms of the function's own sizes."""
        return written_out(e, self.lets)

    def kernel_name(self) -> str:
        made = free_name(f"{self.name}_kernel", self.taken)
        self.taken.add(made)
        return made

    def extents(self, n: AttrStmt) -> dict[str, PrimExpr]:
        """The extent of each axis, in the order blockIdx x y z, threadIdx x y z, clusters; the host must know them."""
        found: dict[str, PrimExpr] = {}
        inside: dict[Var, PrimExpr] = {}
        for m in pre_order(n):
            if isinstance(m, (Let, LetStmt)):
                inside[m.var] = m.value
            elif isinstance(m, AttrStmt) and m.attr_key == "thread_extent" and isinstance(m.node, IterVar):
                found.setdefault(m.node.thread_tag, m.value)
        for tag, value in found.items():
            for _ in range(len(inside)):
                used = {v: inside[v] for v in pre_order(value) if isinstance(v, Var) and v in inside}
                if not used:
                    break
                value = found[tag] = substitute(value, used)
            if self.reads(value):
                raise LoweringError(
                    f"{self.name}: {tag} has {value} threads, a value in device memory: the host launches "
                    "kernels, and cannot read it"
                )
        unknown = [t for t in found if t not in _AXES]
        if unknown:
            raise LoweringError(
                f"{self.name}: a loop is bound to {unknown[0]}, which is not an axis of a GPU: {_AXES}"
            )
        return {tag: found[tag] for tag in _AXES if tag in found}

    def shared_memory(self, n: Stmt, kernel: str) -> tuple[int, dict[Var, int], int]:
        """The bytes of static shared memory, the offset of each allocation in dynamic shared memory, and the bytes of
        that. Allocations beyond the static limit are dynamic."""
        parts: list[tuple[Var, int, bool]] = []
        for m in pre_order(n):
            if isinstance(m, Allocate) and scope_of(m.buffer_var).startswith("shared"):
                nbytes = bytes_of(m.dtype, m.extents)
                if nbytes is None:
                    raise LoweringError(
                        f"{kernel}: the size of {m.buffer_var.name} in shared memory is not known when it is compiled"
                    )
                parts.append((m.buffer_var, nbytes, scope_of(m.buffer_var) in _DYNAMIC))
        declared = sum(size for _, size, dynamic in parts if not dynamic)
        limits = self.limits
        beyond = limits.shared is not None and declared > limits.shared
        more = beyond and limits.dynamic_shared is not None and limits.dynamic_shared > (limits.shared or 0)
        offsets: dict[Var, int] = {}
        at = 0
        for var, size, dynamic in parts:
            if dynamic or more:
                line = _SWIZZLED if scope_of(var) == "shared.async" and size >= _SWIZZLED else _ALIGNED
                offsets[var] = -(-at // line) * line
                at = offsets[var] + -(-size // _ALIGNED) * _ALIGNED
        return 0 if more else declared, offsets, at

    def check(self, kernel: str, extents: dict[str, PrimExpr], shared: int, dynamic: int) -> None:
        """Refuse a kernel that the target cannot launch."""
        limits, where = self.limits, self.limits.target
        known = {tag: const_value(e) for tag, e in extents.items()}
        for tag, size in known.items():
            most = limits.axes.get(tag)
            if size is not None and most is not None and size > most:
                raise LoweringError(
                    f"{kernel}: {tag} has {size} {'threads' if tag.startswith('thread') else 'blocks'}, and {where} "
                    f"allows {most}; split the loop that is bound to it, or bind a part of it to another axis"
                )
        inner = {t: s for t, s in known.items() if t.startswith("threadIdx") and s is not None}
        threads = math.prod(int(s) for s in inner.values())
        if limits.threads is not None and threads > limits.threads:
            told = " * ".join(f"{s} ({t})" for t, s in inner.items())
            raise LoweringError(
                f"{kernel}: a block has {threads} threads, {told}, and {where} allows {limits.threads}; split the "
                "loops that are bound to threadIdx by smaller factors"
            )
        for name, used, most in (
            ("shared memory", shared, limits.shared),
            ("dynamic shared memory", dynamic, limits.dynamic_shared),
        ):
            if most is not None and used > most:
                raise LoweringError(
                    f"{kernel}: a block uses {used} bytes of {name}, and {where} allows {most}; "
                    "make the tiles that are cached in it smaller"
                )


def _with_extent(n: AttrStmt, expanded: Callable[[PrimExpr], PrimExpr]) -> AttrStmt | None:
    """A thread axis whose extent does not use variables of the host."""
    if n.attr_key != "thread_extent" or not isinstance(n.node, IterVar):
        return None
    value = expanded(n.value)
    if value is n.value:
        return None
    dom = None if n.node.dom is None else Range.from_min_extent(n.node.dom.min, value)
    return n.replace(node=IterVar(dom, n.node.var, n.node.iter_type, n.node.thread_tag), value=value)


def _at_offset(n: Allocate, offsets: dict[Var, int]) -> Allocate | None:
    if n.buffer_var not in offsets:
        return None
    return n.replace(annotations={**n.annotations, OFFSET: offsets[n.buffer_var]})


_KIND = {"For": "loop", "While": "loop", "IfThenElse": "condition"}


def _first_line(n: Stmt) -> str:
    return str(n).strip().splitlines()[-1].strip()


def _parameters(body: Stmt) -> list[Var]:
    """The parameters of a kernel: pointers first, then scalars, each in order of use."""
    used: dict[Var, None] = {}
    defined: set[Var] = set()
    for m in pre_order(body):
        if isinstance(m, Var):
            used[m] = None
        elif isinstance(m, (BufferLoad, BufferStore)):
            used[m.buffer.data] = None
        if isinstance(m, For):
            defined.add(m.loop_var)
        elif isinstance(m, (LetStmt, Let)):
            defined.add(m.var)
        elif isinstance(m, (Allocate, AllocateConst)):
            defined.add(m.buffer_var)
        elif isinstance(m, AttrStmt) and m.attr_key == "thread_extent" and isinstance(m.node, IterVar):
            defined.add(m.node.var)
    free = [v for v in used if v not in defined]
    return [v for v in free if v.dtype.is_handle] + [v for v in free if not v.dtype.is_handle]
