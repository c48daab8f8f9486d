"""The reference interpreter: the definition of what a program means.

A function is translated once to Python source, a plain image of its loops over flat memory, and run.
Every read and write is checked as it happens, unless the index is seen to be in bounds beforehand.

- Integers wrap to their type's width; floats are rounded to their type after each operation; functions
  such as `exp` are evaluated in double precision and rounded once. Integer division by zero is an error.
- A float that does not fit an integer type, or is NaN, is cast to the least value of that type.
- `Select` and `if_then_else` evaluate the selected operand only; `And` and `Or` short-circuit.
- A function in block form runs one statement after the other, loops bound to threads included: that
  is what block programs mean. In lowered code threads run concurrently and synchronize at barriers.
- Reports: accesses out of bounds, reads of uninitialized memory, races between threads or
  iterations of a parallel loop, barriers that not all threads reach, iterators out of their domain.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from types import ModuleType
from typing import Any

from ...ir.function import PrimFunc
from ...ir.module import IRModule
from ...ir.ops import LARGEST_VSCALE
from ...ir.sharing import check_written_out
from .expressions import Options
from .program import program_of, run_function
from .report import InterpreterError

__all__ = ["InterpreterError", "interpret", "python_source"]

_LENGTHS = frozenset(1 << i for i in range(LARGEST_VSCALE.bit_length()))


def interpret(
    func: PrimFunc | IRModule,
    *args: Any,
    detect_races: bool = True,
    check_bounds: bool = True,
    check_unwritten: bool = True,
    check_regions: bool = False,
    outputs: Iterable[str] = (),
    vscale: int = 1,
    module: IRModule | None = None,
) -> Any:
    """Run a function on arrays, which are written in place; returns the value of `T.ret`, else None.

    Arrays may be NumPy's, PyTorch's, or anything that shares its memory as one; scalars are Python's.
    `check_regions` checks each access against the reads and writes that its block declares. Parameters named in
    `outputs` count as uninitialized at the start. Scalable vectors have the length factor `vscale`. `module` holds the
    functions that calls refer to; given a module in place of a function, its only one or "main" runs.
    """
    if isinstance(func, IRModule):
        module = module or func
        func = _entry(func)
    if not isinstance(func, PrimFunc):
        raise TypeError(f"interpret takes a PrimFunc or an IRModule, not {type(func).__name__}")
    if vscale not in _LENGTHS:
        raise ValueError(f"interpret: vscale={vscale} is not a power of two from 1 to {LARGEST_VSCALE}")
    check_written_out(func, "interpret")
    options = Options(detect_races, check_bounds, check_unwritten, check_regions, tuple(outputs), vscale)
    return run_function(func, args, options, module)


def _entry(mod: IRModule) -> Any:
    if len(mod) == 1:
        return next(iter(mod.functions.values()))
    if "main" in mod:
        return mod["main"]
    names = ", ".join(gv.name_hint for gv in mod)
    raise ValueError(f"the module has several functions and none is main: {names}; pass one of them")


def python_source(func: PrimFunc, **options: Any) -> str:
    """The Python program that `interpret` runs for a function."""
    return program_of(func, Options(**options)).source


class _Callable(ModuleType):
    """This package, which has the name of its function: calling the package calls the function."""

    def __call__(self, func: PrimFunc | IRModule, *args: Any, **options: Any) -> Any:
        return interpret(func, *args, **options)


sys.modules[__name__].__class__ = _Callable
