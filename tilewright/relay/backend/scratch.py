"""Workspaces of kernels: allocations that move to the model's arena."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from ...ir.buffer import decl_buffer
from ...ir.expr import IntImm, Var
from ...ir.function import PrimFunc
from ...ir.stmt import Allocate, AttrStmt, DeclBuffer, LetStmt, SeqStmt, Stmt
from ...ir.transform import ModulePass, Pass, PassInfo

LEAST: Final = 4096  # bytes: smaller allocations are on the stack
_INFO: Final = PassInfo(0, "TakeScratch")


@dataclass
class Scratch:
    """The allocations of a kernel: names and sizes of those that its caller passes, and the bytes that each thread
    allocates in addition."""

    given: list[tuple[str, int]] = field(default_factory=list)
    inside: int = 0

    def taken(self) -> Pass:
        """The pass that finds them in a lowered function."""
        return ModulePass(lambda mod, ctx: mod.map_functions(self.take), _INFO)

    def take(self, func: Any) -> Any:
        """Turn allocations outside of all loops into parameters.

            def kernel(x, y):                             def kernel(x, y, padded):
                padded = allocate(4096)                       for i in parallel(64):
                for i in parallel(64):            ->              row = allocate(128)      # one for each thread
                    row = allocate(128)                           …
                    …

        Needs: flat loops.
        """
        if not isinstance(func, PrimFunc):
            return func
        found: list[Allocate] = []
        body = _without(func.body, found)
        self.inside = _most(body)
        if not found:
            return func
        taken = {str(b.name) for b in func.buffer_map.values()}
        params, buffers = list(func.params), dict(func.buffer_map)
        for a in found:
            name, size = fresh_name(f"{a.buffer_var.name}_scratch", taken), _size(a)
            assert size is not None
            handle = Var(name, "handle")
            buffers[handle] = decl_buffer(
                (size // a.dtype.nbytes,), a.dtype, name=name, data=a.buffer_var, data_alignment=64
            )
            params.append(handle)
            self.given.append((name, size))
        return PrimFunc(params, body, func.ret_type, buffers, func.attrs, func.span)


def fresh_name(name: str, taken: set[str]) -> str:
    """A name that is not taken yet, and is from now on."""
    while name in taken:
        name += "_"
    taken.add(name)
    return name


def _size(a: Allocate) -> int | None:
    """The bytes of an allocation, if they are known."""
    size = a.dtype.nbytes
    for e in a.extents:
        if not isinstance(e, IntImm):
            return None
        size *= int(e.value)
    return size


def _scope(var: Any) -> str:
    return str(getattr(var.type_annotation, "storage_scope", "") or "global")


def _without(s: Stmt, found: list[Allocate]) -> Stmt:
    """A statement without the large allocations that are in no loop and no branch."""
    if isinstance(s, Allocate):
        size = _size(s)
        if size is not None and size >= LEAST and _scope(s.buffer_var) == "global":
            found.append(s)
            return _without(s.body, found)
    if isinstance(s, (Allocate, AttrStmt, DeclBuffer, LetStmt)):
        body = _without(s.body, found)
        return s if body is s.body else s.replace(body=body)
    if isinstance(s, SeqStmt):
        return s.map_children(lambda c: _without(c, found) if isinstance(c, Stmt) else c)
    return s


def _most(s: Any) -> int:
    """The most bytes that one thread has allocated at once, as far as known."""
    inner = max((_most(c) for c in s.children() if isinstance(c, Stmt)), default=0)
    size = (_size(s) or 0) if isinstance(s, Allocate) else 0
    return inner + (size if size >= LEAST else 0)
