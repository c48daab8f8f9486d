"""The runtime of translated programs: memory, calls of other functions, and reports."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NoReturn

import numpy as np

from ...ir.dtype import DataType
from . import scalars
from .engines import EngineLog, run_engines
from .fragments import run_fragments
from .memory import Memory, Pointer
from .report import InterpreterError
from .threads import Clock, Request, launch, lockstep


class Left(Exception):
    """The function returned a value by `T.ret`."""

    def __init__(self, value: Any) -> None:
        super().__init__()
        self.value = value


class Run:
    """One run of a program: the current thread, and the module whose functions it may call."""

    def __init__(self, module: Any, options: Any, sites: list[Any]) -> None:
        self.module, self.options = module, options
        self.clock = Clock(sites)

    # -- memory ------------------------------------------------------------------------------
    def allocate(
        self,
        name: str,
        kind: DataType,
        shape: tuple[int, ...],
        count: int,
        scope: str,
        unit: int,
        tracked: bool,
    ) -> Pointer:
        """Uninitialized memory."""
        if count < 0:
            raise InterpreterError("out-of-bounds", f"an allocation of {count} elements for {name}")
        held = scalars.numpy_type(kind)
        if held.hasobject:
            raw = np.full(count * kind.lanes, None, object)
        else:
            # aligned to a vector register, for accesses of any type
            size = count * kind.lanes * held.itemsize
            space = np.zeros(size + 64, np.uint8)
            start = -space.ctypes.data % 64
            raw = space[start : start + size]
        return Pointer(Memory(name, kind, shape, raw, unit, scope, tracked))

    def constant(self, name: str, kind: DataType, shape: tuple[int, ...], data: Any) -> Pointer:
        """Memory that holds a constant array."""
        values = np.asarray(data.numpy() if hasattr(data, "numpy") else data).astype(scalars.numpy_type(kind))
        count = int(np.prod(shape, dtype=np.int64))
        if values.size != count * kind.lanes:
            raise InterpreterError("call", f"constant {name}: {values.size} values for the shape {shape}")
        made = self.allocate(name, kind, shape, count, "global", kind.element.nbytes, False)
        made.memory.raw[:] = np.frombuffer(values.tobytes(), np.uint8)
        return made

    def put(self, pointer: Pointer, kind: DataType, value: Any) -> None:
        """Store a value at a pointer."""
        pointer.view(kind)[0] = value
        if pointer.memory.mask is not None:
            set_all(
                pointer.memory.mask,
                pointer.offset // pointer.memory.unit,
                -(-kind.nbytes // pointer.memory.unit),
            )

    def atomic_add(self, pointer: Pointer, value: Any, kind: DataType, site: int) -> Any:
        """Add to the element at a pointer atomically; returns the previous value."""
        memory = pointer.memory
        flat = pointer.view(kind)
        if not len(flat):
            raise InterpreterError("out-of-bounds", f"atomic_add past the end of {memory.name}")
        cells = -(-kind.nbytes // memory.unit)
        if memory.log is not None:
            memory.log.write_span(pointer.cell, cells, site, True)
        if memory.mask is not None and 0 in memory.mask[pointer.cell : pointer.cell + cells]:
            self._unwritten(memory, pointer.cell, site, f"atomic_add to {memory.name}")
        old = flat[0]
        flat[0] = scalars.wrap_to(kind, old + value) if kind.is_integral else old + value
        return old

    def copy(self, target: Pointer, source: Pointer, size: int, site: int) -> None:
        """Copy `size` bytes."""
        for pointer, write in ((source, False), (target, True)):
            memory = pointer.memory
            if not 0 <= pointer.offset <= memory.nbytes - size:
                raise InterpreterError(
                    "out-of-bounds",
                    f"a copy of {size} bytes at byte {pointer.offset} of {memory.name}, "
                    f"which has {memory.nbytes}",
                )
            cells = -(-size // memory.unit)
            if memory.log is not None:
                (memory.log.write_span if write else memory.log.read_span)(pointer.cell, cells, site)
            if memory.mask is not None:
                if write:
                    memory.mask[pointer.cell : pointer.cell + cells] = b"\1" * cells
                elif 0 in memory.mask[pointer.cell : pointer.cell + cells]:
                    at = memory.mask.index(0, pointer.cell)
                    self._unwritten(memory, at, site, f"a copy from {memory.name}")
        target.memory.raw[target.offset : target.offset + size] = source.memory.raw[
            source.offset : source.offset + size
        ]

    def clear(self, target: Pointer, size: int, site: int) -> None:
        """Write `size` bytes of zeros."""
        self.copy(
            target,
            Pointer(Memory("zeros", DataType("uint8"), (size,), np.zeros(size, np.uint8), 1)),
            size,
            site,
        )

    def _unwritten(self, memory: Memory, cell: int, site: int, what: str) -> None:
        """Report a read of uninitialized memory, once it is clear that no other thread writes it."""
        if memory.log is not None and self.clock.stamp.label:
            memory.log.unwritten(cell, site)
        else:
            raise InterpreterError("unwritten", f"{what}, which nothing wrote before")

    # -- functions ---------------------------------------------------------------------------
    def call_module(self, name: str, *args: Any) -> Any:
        """Run another function of the module."""
        from .program import run_function

        if self.module is None or name not in self.module:
            known = "no module was given" if self.module is None else f"the module has no function {name!r}"
            raise InterpreterError("call", f"a call of {name}, but {known}; pass interpret(…, module=mod)")
        result = run_function(self.module[name], args, replace(self.options, outputs=()), self.module)
        for a in args:
            if isinstance(a, Pointer):
                a.memory.mark_written()
        return result

    def call_packed(self, name: str, *args: Any) -> Any:
        """Call a function of the global registry, or of the module."""
        if self.module is not None and name in self.module:
            return self.call_module(name, *args)
        function = _registered(name)
        if function is None:
            raise InterpreterError("call", f"no function is registered as {name!r}; see register_func")
        return function(*(_packed_argument(a) for a in args))

    def call_extern(self, name: str, *args: Any) -> Any:
        """Call a C function by name: one of the module, or a Python stand-in from the registry."""
        if self.module is not None and name in self.module:
            return self.call_module(name, *args)
        function = _registered(name)
        if function is None:
            raise InterpreterError(
                "call",
                f"the interpreter cannot call the C function {name!r}; register a Python one of that name",
            )
        plain = [a.array(a.memory.kind, (_rest(a),)) if isinstance(a, Pointer) else a for a in args]
        return function(*plain)


def _rest(p: Pointer) -> int:
    return (p.memory.nbytes - p.offset) // p.memory.kind.nbytes


def _registered(name: str) -> Any:
    from ...runtime.registry import get_global_func

    return get_global_func(name, True)


def _packed_argument(value: Any) -> Any:
    """Arrays as the runtime's arrays, over the same memory; scalars as they are."""
    if isinstance(value, Pointer):
        value = value.array(value.memory.kind, (_rest(value),))
    if isinstance(value, np.ndarray):
        from ...runtime.ndarray import from_dlpack

        return from_dlpack(value)
    return value.item() if isinstance(value, np.generic) else value


# ---------------------------------------------------------------------------- helpers of translated code
def all_set(mask: Any, position: int, count: int) -> bool:
    """Whether all cells of an element were written."""
    return 0 not in mask[position * count : position * count + count]


def set_all(mask: Any, position: int, count: int) -> None:
    """Mark all cells of an element as written."""
    mask[position * count : position * count + count] = b"\1" * count


def leave(value: Any) -> NoReturn:
    raise Left(value)


def as_type(kind: DataType, value: Any) -> Any:
    """A Python function's result as a value of the program."""
    if value is None:
        value = 0
    if kind.is_bool:
        return bool(value)
    return scalars.rounding(kind)(float(value)) if kind.is_float else scalars.wrap_to(kind, int(value))


def bad_access(
    does: str,
    name: str,
    indices: tuple[int, ...],
    shape: tuple[tuple[int, int], ...],
    pointer: Pointer,
    bounds: bool,
) -> NoReturn:
    """Report an access that failed a check."""
    element = f"{name}[{', '.join(map(str, indices))}]"
    if bounds and any(not low <= i < low + n for i, (low, n) in zip(indices, shape)):
        if all(low == 0 for low, _ in shape):
            size = f"has shape ({', '.join(str(n) for _, n in shape)})"
        else:
            size = f"has the bounds [{', '.join(f'{low}:{low + n}' for low, n in shape)}]"
        raise InterpreterError("out-of-bounds", f"out of bounds: {does} {element}, but {name} {size}")
    if does == "read of" and pointer.memory.mask is not None and 0 in pointer.memory.mask:
        raise InterpreterError(
            "unwritten", f"unwritten memory: read of {element}, which nothing wrote before"
        )
    raise InterpreterError(
        "out-of-bounds",
        f"out of bounds: {does} {element} leaves its memory, "
        f"{pointer.memory.name} of {pointer.memory.nbytes} bytes",
    )


def in_regions(
    block: str,
    does: str,
    name: str,
    indices: tuple[int, ...],
    regions: tuple[tuple[tuple[int, int], ...], ...],
) -> bool:
    """Check an access against the regions that its block declares; returns True, for use in a condition."""
    for region in regions:
        if all(low <= i < high for i, (low, high) in zip(indices, region)):
            return True
    declared = [f"{name}[{', '.join(f'{a}:{b}' for a, b in r)}]" for r in regions]
    raise InterpreterError(
        "region",
        f'block "{block}" {does} {name}[{", ".join(map(str, indices))}], '
        f"but declares {'nothing of it' if not declared else ', '.join(declared)}",
    )


def bad_domain(name: str, block: str, value: int, low: int, stop: int) -> NoReturn:
    raise InterpreterError(
        "domain", f'iterator {name} of block "{block}" is {value}, outside its domain [{low}, {stop})'
    )


def bad_region(name: str, source: str, region: str) -> NoReturn:
    raise InterpreterError("out-of-bounds", f"out of bounds: {name} matches the region {region} of {source}")


def bad_match(name: str, what: str, have: int, want: int) -> NoReturn:
    raise InterpreterError("call", f"match_buffer of {name}: `{what}` is {have}, the region has {want}")


def failed_assert(message: str) -> NoReturn:
    raise InterpreterError("assert", f"assertion failed: {message}")


def bad_data(kind: str, message: str, *values: int) -> NoReturn:
    raise InterpreterError(kind, message.format(*values))


def broken_promise(condition: str) -> NoReturn:
    raise InterpreterError("assume", f"the program assumes `{condition}`, which does not hold")


def products(xs: Sequence[Any], ys: Sequence[Any]) -> list[Any]:
    """The products of two vectors: exact for integers, in float32 for floats of 16 bits."""
    if isinstance(xs[0], int):
        return [x * y for x, y in zip(xs, ys, strict=True)]
    return list(np.asarray(xs, np.float32) * np.asarray(ys, np.float32))


HELPERS: dict[str, Any] = {
    **{f"F_{name}": function for name, function in scalars.FUNCTIONS.items()},
    **{f"math_{name}": getattr(math, name) for name in ("isnan", "isinf", "isfinite")},
    "Request": Request,
    "all_set": all_set,
    "as_type": as_type,
    "bad_access": bad_access,
    "bad_domain": bad_domain,
    "bad_match": bad_match,
    "bad_region": bad_region,
    "broken_promise": broken_promise,
    "count_leading_zeros": scalars.count_leading_zeros,
    "divide": scalars.divide,
    "bad_data": bad_data,
    "failed_assert": failed_assert,
    "fixed_point": scalars.fixed_point,
    "run_fragments": run_fragments,
    "float_to_int": scalars.float_to_int,
    "fused": scalars.fused,
    "in_regions": in_regions,
    "EngineLog": EngineLog,
    "launch": launch,
    "run_engines": run_engines,
    "leave": leave,
    "lockstep": lockstep,
    "next_after": scalars.next_after,
    "reinterpret": scalars.reinterpret,
    "products": products,
    "set_all": set_all,
    "shift_left": scalars.shift_left,
    "shift_right": scalars.shift_right,
    "floor_div": scalars.floor_div,
    "floor_mod": scalars.floor_mod,
    "trunc_div": scalars.trunc_div,
    "trunc_mod": scalars.trunc_mod,
}
