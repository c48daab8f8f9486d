"""Help for tests of schedules: comparing programs, and replaying traces."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...ir.equal import assert_structural_equal
from ...ir.function import PrimFunc
from ...ir.module import IRModule
from .schedule import Schedule
from .trace import Trace


def assert_structural_equal_ignore_global_symbol(
    func1: PrimFunc | IRModule, func2: PrimFunc | IRModule, *args: Any, **kwargs: Any
) -> None:
    """Fail unless two programs are the same, whatever their functions are called."""
    assert_structural_equal(_unnamed(func1), _unnamed(func2), *args, **kwargs)


def _unnamed(given: Any) -> Any:
    if isinstance(given, PrimFunc):
        return given.with_attr("global_symbol", "")
    functions = {gv: _unnamed(f) if isinstance(f, PrimFunc) else f for gv, f in given.functions.items()}
    return IRModule(functions, given.type_definitions, given.attrs)


def verify_trace_roundtrip(
    sch: Schedule,
    mod: PrimFunc | IRModule,
    *,
    debug_mask: Any = "all",
    text_format: str | Sequence[str] = ("python", "json"),
) -> Schedule:
    """Do the steps of a schedule again on `mod`, from each text form of its trace, and compare."""
    made = sch
    for kind in (text_format,) if isinstance(text_format, str) else text_format:
        made = Schedule(mod)
        if kind == "json":
            Trace.apply_json_to_schedule(sch.trace.as_json(), made, trusted=True)
        elif kind == "python":
            exec("\n".join(sch.trace.as_python()), {"sch": made})
        else:
            raise ValueError(f"a trace has the text forms python and json, not {kind!r}")
        assert_structural_equal_ignore_global_symbol(made.mod, sch.mod)
    return made
