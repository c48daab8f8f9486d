"""Instruments observe passes: they time them, print modules, or skip passes."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, overload

if TYPE_CHECKING:
    from .module import IRModule
    from .transform import PassInfo

_C = TypeVar("_C", bound=type)


class PassInstrument:
    """The interface of instruments; the default methods do nothing.

    with PassContext(instruments=[I]):        I.enter_pass_ctx()
        pass_(mod)                     ->     if I.should_run(mod, info):
                                                  I.run_before_pass(mod, info)
                                                  new = …
                                                  I.run_after_pass(new, info)
                                              I.exit_pass_ctx()
    """

    @property
    def name(self) -> str:
        return type(self).__name__

    def enter_pass_ctx(self) -> None:
        """The context is entered."""

    def exit_pass_ctx(self) -> None:
        """The context is left."""

    def should_run(self, mod: IRModule, info: PassInfo) -> bool:
        """Whether the pass may run; passes that the context requires always run."""
        return True

    def run_before_pass(self, mod: IRModule, info: PassInfo) -> None:
        """The pass is about to run on `mod`."""

    def run_after_pass(self, mod: IRModule, info: PassInfo) -> None:
        """The pass has given `mod`."""


@overload
def pass_instrument(pi_cls: _C) -> _C: ...
@overload
def pass_instrument(pi_cls: None = None) -> Callable[[_C], _C]: ...
def pass_instrument(pi_cls: Any = None) -> Any:
    """Make an instrument of any class that has some of the methods of PassInstrument."""

    def decorate(cls: Any) -> Any:
        if not isinstance(cls, type):
            raise TypeError(f"pass_instrument decorates a class, not {cls!r}")
        if issubclass(cls, PassInstrument):
            return cls
        made = type(cls.__name__, (cls, PassInstrument), {"__doc__": cls.__doc__})
        made.__module__, made.__qualname__ = cls.__module__, cls.__qualname__
        return made

    return decorate if pi_cls is None else decorate(pi_cls)


class _Timed:
    """The time of one run of a pass, and of the passes inside it."""

    __slots__ = ("inner", "name", "seconds", "start")

    def __init__(self, name: str) -> None:
        self.name, self.inner = name, list[_Timed]()
        self.seconds, self.start = 0.0, time.perf_counter()

    @property
    def own(self) -> float:
        """Without the passes inside."""
        return self.seconds - sum(t.seconds for t in self.inner)


class PassTimingInstrument(PassInstrument):
    """Measures passes; `render()` gives the table, inside the context or after it."""

    def __init__(self) -> None:
        self._root = _Timed("")
        self._open = [self._root]

    def enter_pass_ctx(self) -> None:
        self._root = _Timed("")
        self._open = [self._root]

    def run_before_pass(self, mod: IRModule, info: PassInfo) -> None:
        timed = _Timed(info.name)
        self._open[-1].inner.append(timed)
        self._open.append(timed)

    def run_after_pass(self, mod: IRModule, info: PassInfo) -> None:
        timed = self._open.pop()
        timed.seconds = time.perf_counter() - timed.start

    def render(self) -> str:
        """One line for each pass: `name: total [own] (percent of all; percent of the one around it)`."""
        self._root.seconds = sum(t.seconds for t in self._root.inner)
        lines: list[str] = []

        def walk(timed: _Timed, depth: int, around: float) -> None:
            whole = 100 * timed.seconds / (self._root.seconds or 1)
            part = 100 * timed.seconds / (around or 1)
            lines.append(
                "\t" * depth + f"{timed.name}: {timed.seconds * 1e6:.0f}us [{timed.own * 1e6:.0f}us] "
                f"({whole:.2f}%; {part:.2f}%)\n"
            )
            for t in timed.inner:
                walk(t, depth + 1, timed.seconds)

        for t in self._root.inner:
            walk(t, 0, self._root.seconds)
        return "".join(lines)

    def totals(self) -> dict[str, tuple[int, float]]:
        """For each pass how often it ran and how many seconds it took without passes inside it."""
        found: dict[str, tuple[int, float]] = {}
        stack = list(self._root.inner)
        while stack:
            timed = stack.pop()
            runs, seconds = found.get(timed.name, (0, 0.0))
            found[timed.name] = (runs + 1, seconds + timed.own)
            stack.extend(timed.inner)
        return found


class PassPrintingInstrument(PassInstrument):
    """Prints the module before and after the passes that are named."""

    def __init__(
        self, print_before_pass_names: Iterable[str] = (), print_after_pass_names: Iterable[str] = ()
    ) -> None:
        self.before, self.after = frozenset(print_before_pass_names), frozenset(print_after_pass_names)

    def run_before_pass(self, mod: IRModule, info: PassInfo) -> None:
        if info.name in self.before:
            _print_program(f"Print IR before: {info.name}", mod)

    def run_after_pass(self, mod: IRModule, info: PassInfo) -> None:
        if info.name in self.after:
            _print_program(f"Print IR after: {info.name}", mod)


class PrintBeforeAll(PassInstrument):
    """Prints the module before each pass."""

    def run_before_pass(self, mod: IRModule, info: PassInfo) -> None:
        _print_program(f"Before Running Pass: {info.name}", mod)


class PrintAfterAll(PassInstrument):
    """Prints the module after each pass."""

    def run_after_pass(self, mod: IRModule, info: PassInfo) -> None:
        _print_program(f"After Running Pass: {info.name}", mod)


class DumpIR(PassInstrument):
    """Writes the module after each pass into a folder, as `005_tir.UnrollLoop.py`."""

    def __init__(self, dump_dir: str | Path, refresh: bool = False) -> None:
        self.dump_dir = Path(dump_dir)
        self._count = 0
        if refresh:
            # Only what an instrument of this kind wrote: the folder may be the user's.
            for old in self.dump_dir.glob("[0-9][0-9][0-9]_*.py"):
                old.unlink()

    def enter_pass_ctx(self) -> None:
        self._count = 0

    def run_after_pass(self, mod: IRModule, info: PassInfo) -> None:
        self.dump_dir.mkdir(parents=True, exist_ok=True)
        name = "".join(c if c.isalnum() or c in "._-" else "_" for c in info.name)
        path = self.dump_dir / f"{self._count:03d}_{name}.py"
        path.write_text(program_text(mod) + "\n", encoding="utf-8")
        self._count += 1


def _print_program(title: str, mod: IRModule) -> None:
    sys.stdout.write(f"# {title}\n{program_text(mod)}\n")


def program_text(mod: IRModule) -> str:
    """The module as text, or the error: dumps must also work for broken programs."""
    try:
        return str(mod)
    except Exception as error:
        return f"# this program cannot be printed: {type(error).__name__}: {error}"
