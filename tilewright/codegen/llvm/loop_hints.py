"""Loops that LLVM leaves as they are: not unrolled, or not vectorized either. The metadata of a loop says so."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...ir.buffer import Buffer
from ...ir.expr import (
    Add,
    Broadcast,
    Cast,
    IntImm,
    Mul,
    PrimExpr,
    Ramp,
    Sub,
    Var,
    const_value,
)
from ...ir.functor import pre_order, statements
from ...ir.stmt import BufferStore, For, LetStmt, Stmt

if TYPE_CHECKING:
    from .module_emitter import ModuleEmitter

_TILE = 8  # stores of vectors in a body that uses all registers already
_CHAIN = 2048  # values of a dependence chain that LLVM's vectorizer takes too long for
_UNROLLED = 64  # the most iterations of a loop that LLVM may unroll whole
_AFFINE = (Var, IntImm, Add, Sub, Mul, Cast, Ramp, Broadcast)
_VALUE = re.compile(r"%[\w.]+")


def metadata(module: ModuleEmitter, loop: For, lines: Sequence[str]) -> str:
    """The metadata of the branch that closes a loop, whose code is `lines`; nothing if LLVM may do as it likes."""
    scalar = _stores_again(loop) or _is_long_chain(lines)
    return module.kept(scalar=scalar) if scalar or _is_tile(loop.body) else ""


def _is_tile(body: Stmt) -> bool:
    """Whether a loop's body keeps a register tile: unrolling it again would only cause spills."""
    count = 0
    for m in statements(body):
        if isinstance(m, BufferStore) and m.value.dtype.is_vector:
            count += 1
            if count >= _TILE:
                return True
    return False


def _stores_again(loop: For) -> bool:
    """Whether several stores of a loop go to one buffer at indices that are not affine in its variable, so that
    iterations may share elements: `B[i // 2] = 0; if i % 2 == 0: B[i // 2] += A[i]`. LLVM's vectorizer (22.1) lets all
    iterations of a vector take the first store before one takes the second."""
    stores: dict[Buffer, list[BufferStore]] = {}
    affine = {loop.loop_var: True}  # the variables that depend on the loop's: whether they do so affinely

    def is_affine(e: PrimExpr) -> bool | None:
        """Whether an expression is affine in the loop's variable; None if it does not depend on it."""
        used = [affine[m] for m in pre_order(e) if isinstance(m, Var) and m in affine]
        if not used:
            return None
        return all(used) and all(isinstance(m, _AFFINE) for m in pre_order(e))

    for m in statements(loop.body):
        if isinstance(m, For):
            extent = const_value(m.extent)
            if extent is None or extent > _UNROLLED:
                return False  # LLVM vectorizes innermost loops, after it has unrolled short ones
        elif isinstance(m, LetStmt):
            if (known := is_affine(m.value)) is not None:
                affine[m.var] = known
        elif isinstance(m, BufferStore):
            stores.setdefault(m.buffer, []).append(m)
    return any(
        len(several) > 1 and any(is_affine(i) is False for m in several for i in m.indices)
        for several in stores.values()
    )


def _is_long_chain(body: Sequence[str]) -> bool:
    """Whether the body of an innermost loop has a dependence chain of thousands of values. LLVM's vectorizer walks the
    chain again from each of them: 2.5 seconds for 4,000, 16 for 10,000."""
    if len(body) <= _CHAIN or any(line.startswith("head") for line in body):
        return False
    depth: dict[str, int] = {}
    for line in body:
        made, equals, of = line.partition(" = ")
        if equals and not of.startswith(("load ", "phi ")):
            depth[made.strip()] = 1 + max((depth.get(v, 0) for v in _VALUE.findall(of)), default=0)
    return max(depth.values()) >= _CHAIN
