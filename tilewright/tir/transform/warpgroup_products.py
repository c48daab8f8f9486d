"""Warpgroup products (`wgmma`) in flight, and the waits of the statements that depend on them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...ir.expr import Call, PrimExpr, Var, const, const_value
from ...ir.functor import pre_order, substitute
from ...ir.op import Op
from ...ir.ops import add
from ...ir.stmt import Evaluate, For, ForKind, Stmt, stmt_list

_SHARED, _REGISTERS, _FILL = (
    Op.get(f"tir.{n}") for n in ("ptx_wgmma", "ptx_wgmma_registers", "tvm_fill_fragment")
)
PRODUCTS = (_SHARED, _REGISTERS)


def _call(s: Stmt) -> Call | None:
    return s.value if isinstance(s, Evaluate) and isinstance(s.value, Call) else None


def is_product(s: Stmt) -> bool:
    """Whether a statement is one product of a warpgroup."""
    call = _call(s)
    return call is not None and call.op in PRODUCTS


def _sums(call: Call) -> tuple[PrimExpr, PrimExpr]:
    """The accumulators of a product: the buffer, and the index of the fragment in it."""
    at = 4 if call.op is _SHARED else 2
    return call.args[at], call.args[at + 1]


def written_out(steps: Sequence[Stmt]) -> list[Stmt]:
    """Write out the unrolled loops of products, and let the first product overwrite accumulators that were just zeroed.

    fill(C, 0)
    for k in unroll(2):         ->      product(C, A[0], first)
        product(C, A[k])                product(C, A[1])
    """
    out: list[Stmt] = []
    for s in steps:
        for each in _unrolled(s):
            call, before = _call(each), _call(out[-1]) if out else None
            if call is not None and before is not None and _starts(before, call):
                out[-1] = Evaluate(call.replace(args=(*call.args, const(1))))
            else:
                out.append(each)
    return out


def _unrolled(s: Stmt) -> list[Stmt]:
    if (
        not isinstance(s, For)
        or s.kind is not ForKind.UNROLLED
        or not all(map(is_product, stmt_list(s.body)))
    ):
        return [s]
    count = int(const_value(s.extent) or 0)
    return [
        substitute(each, {s.loop_var: add(s.min, const(i, s.loop_var.dtype))})
        for i in range(count)
        for each in stmt_list(s.body)
    ]


def _starts(fill: Call, product: Call) -> bool:
    """Whether `fill` zeroes the accumulators that `product` adds to."""
    if fill.op is not _FILL or product.op not in PRODUCTS or const_value(fill.args[5]) != 0:
        return False
    held, index = _sums(product)
    return fill.args[0] is held and const_value(fill.args[4]) == const_value(index) is not None


def apart(steps: Sequence[Stmt]) -> tuple[list[Stmt], list[Stmt], list[Stmt]]:
    """The products at the start of an iteration, the statements between, and the products at its end."""
    first = next((i for i, s in enumerate(steps) if not is_product(s)), len(steps))
    last = next((i for i in range(len(steps), first, -1) if not is_product(steps[i - 1])), first)
    return [*steps[:first]], [*steps[first:last]], [*steps[last:]]


def _touched(s: Stmt) -> set[Var]:
    """The variables that a statement uses, including those of buffers."""
    out: set[Var] = set()
    for m in pre_order(s):
        if isinstance(m, Var):
            out.add(m)
        buffer: Any = getattr(m, "buffer", None)
        if buffer is not None:
            out.add(buffer.data)
    return out


def _busy(product: Stmt) -> set[Var]:
    """The registers that a product in flight reads and writes."""
    call = _call(product)
    assert call is not None
    held = [_sums(call)[0], *([call.args[4]] if call.op is _REGISTERS else [])]
    return {v for v in held if isinstance(v, Var)}


def in_order(steps: Sequence[Stmt], after: Mapping[int, Stmt]) -> list[Stmt]:
    """Insert waits: each statement waits for the products whose registers it uses, and at the end none is in flight.

    `after` maps the position of a product to the statement to run as soon as that product is known to be complete.
    """
    out: list[Stmt] = []
    flying: list[int] = []

    def wait(count: int) -> None:
        """Wait until all but the last `count` products are complete."""
        done, left = flying[: len(flying) - count], flying[len(flying) - count :]
        if done:
            out.append(Evaluate(Call("int32", "tir.ptx_wgmma_wait", [const(count)])))
        out.extend(after[i] for i in done if i in after)
        flying[:] = left

    for i, s in enumerate(steps):
        if is_product(s):
            flying.append(i)
        else:
            used = _touched(s)
            needed = [n for n, f in enumerate(flying) if _busy(steps[f]) & used]
            if needed:
                wait(len(flying) - 1 - needed[-1])
        out.append(s)
    wait(0)
    return out
