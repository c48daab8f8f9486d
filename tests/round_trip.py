"""`pytest --round-trip`: every program that the tests make is printed, read back and compared.

Looked at are the modules after each pass, the programs after each step of a schedule, and what is
interpreted. A difference fails the test that made the program.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from weakref import WeakSet

from tilewright.ir import IRModule, PrimFunc, assert_structural_equal
from tilewright.ir import transform as passes
from tilewright.script import from_source

_seen: WeakSet[PrimFunc] = WeakSet()


def check(program: Any, maker: str) -> None:
    """Raise ValueError if the program's text is not the program."""
    functions = [program] if isinstance(program, PrimFunc) else list(program.functions.values())
    if not all(isinstance(f, PrimFunc) for f in functions):
        return  # functions of other kinds have no script form
    if all(f in _seen for f in functions):
        return
    _seen.update(functions)
    text = program.script()
    try:
        assert_structural_equal(program, from_source(text), map_free_vars=True)
    except Exception as bad:
        raise ValueError(f"after {maker}, what is printed is not what was there:\n{text}\n{bad}") from bad


@contextmanager
def checked_passes() -> Iterator[list[str]]:
    """Check what each pass gives meanwhile; the passes that gave something are listed."""
    seen: list[str] = []

    def one(mod: IRModule, name: str) -> None:
        seen.append(name)
        check(mod, name)

    passes.register_checker(one)
    try:
        yield seen
    finally:
        passes._checkers.remove(one)


def watch() -> None:
    """Check whatever is made from here on."""
    from tilewright.tir.interpret import program
    from tilewright.tir.schedule.trace import Trace

    passes.register_checker(check)
    record, interpreted = Trace.record, program.program_of

    def recorded(self: Any, name: str, *args: Any) -> Any:
        for a in args:
            if isinstance(a, IRModule):
                check(a, name)
        return record(self, name, *args)

    def translated(func: PrimFunc, options: Any) -> Any:
        check(func, "being interpreted")
        return interpreted(func, options)

    Trace.record = recorded  # type: ignore[method-assign]
    program.program_of = translated
