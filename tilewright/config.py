"""The knobs of the house: few, typed, each with an environment variable and a `with` form.

    TILEWRIGHT_TIME=1 python model.py             with config.using(time=True):
                                                      tvm.build(…)

A `with` form wins over the environment, and holds for the thread that opened it.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

from .cpus import usable_cpus

__all__ = [
    "Knob",
    "cache",
    "cache_dir",
    "cache_size",
    "check",
    "code_key",
    "config_dir",
    "data_check",
    "debug",
    "dump",
    "knobs",
    "llvm_level",
    "num_threads",
    "time",
    "using",
    "versions",
]

_T = TypeVar("_T")
_UNSET: Final[Any] = object()


class Knob(Generic[_T]):
    """A setting of one type: what a `with` form says, else its environment variable, else its default."""

    def __init__(
        self,
        name: str,
        variable: str,
        default: Callable[[], _T],
        accept: Callable[[Any], _T],
        doc: str,
        changes_code: bool = False,
    ) -> None:
        self.name, self.variable, self.doc = name, variable, doc
        self.changes_code = changes_code
        self._default, self._accept = default, accept
        self._override: ContextVar[Any] = ContextVar(variable, default=_UNSET)
        # An environment variable rarely changes, and a knob is asked for often.
        self._parsed: tuple[str, _T] | None = None
        self.holders: dict[int, _T] = {}
        self._watchers: list[Callable[[int, _T | None], None]] = []

    @property
    def value(self) -> _T:
        """What the knob stands at now."""
        given = self._override.get()
        if given is not _UNSET:
            return given  # type: ignore[no-any-return]
        text = os.environ.get(self.variable)
        if text is None or text == "":
            return self._default()
        if self._parsed is None or self._parsed[0] != text:
            self._parsed = (text, self._checked(text, self.variable))
        return self._parsed[1]

    @contextmanager
    def set(self, value: Any) -> Iterator[_T]:
        """Hold the knob at `value` inside a `with` statement."""
        checked = self._checked(value, f"config.{self.name}")
        me = threading.get_ident()
        before = self.holders.get(me)
        token = self._override.set(checked)
        try:
            self._hold(me, checked)
            yield checked
        finally:
            self._override.reset(token)
            self._hold(me, before)

    def keep(self, value: Any) -> None:
        """Hold the knob at `value` in this thread from now on; None gives it back."""
        checked = None if value is None else self._checked(value, f"config.{self.name}")
        self._override.set(_UNSET if checked is None else checked)
        self._hold(threading.get_ident(), checked)

    def watch(self, changed: Callable[[int, _T | None], None]) -> None:
        """Call `changed(thread, value)` when a `with` form of a thread begins, and with what held before it
        (None for nothing) when it ends; at once for those that are open now.

        For code that cannot ask for the value itself, such as compiled code.
        """
        self._watchers.append(changed)
        for thread, value in list(self.holders.items()):
            changed(thread, value)

    def _hold(self, thread: int, value: _T | None) -> None:
        if value is None:
            self.holders.pop(thread, None)
        else:
            self.holders[thread] = value
        for changed in self._watchers:
            changed(thread, value)

    def _checked(self, value: Any, where: str) -> _T:
        try:
            return self._accept(value)
        except (TypeError, ValueError) as error:
            raise ValueError(f"{where}={value!r}: {error}; it means: {self.doc}") from None

    def __repr__(self) -> str:
        return f"<{self.variable}={self.value!r}: {self.doc}>"


_WORDS: Final = {"0": False, "false": False, "off": False, "no": False}
_WORDS_ON: Final = {"1": True, "true": True, "on": True, "yes": True}


def _switch(value: Any) -> bool:
    if isinstance(value, (bool, int)) and value in (0, 1):
        return bool(value)
    word = str(value).strip().lower()
    if word in _WORDS or word in _WORDS_ON:
        return word in _WORDS_ON
    raise ValueError("expected 0 or 1")


def _whole(low: int, high: int | None) -> Callable[[Any], int]:
    wanted = f"a whole number from {low}" + (f" to {high}" if high is not None else " on")

    def accept(value: Any) -> int:
        try:
            number = int(value.strip()) if isinstance(value, str) else value
        except ValueError:
            raise ValueError(f"expected {wanted}") from None
        if isinstance(number, bool) or not isinstance(number, int):
            raise ValueError(f"expected {wanted}")
        if number < low or (high is not None and number > high):
            raise ValueError(f"expected {wanted}")
        return number

    return accept


def _one_of(*words: str) -> Callable[[Any], str]:
    def accept(value: Any) -> str:
        if value not in words:
            raise ValueError(f"expected {' or '.join(map(repr, words))}")
        return str(value)

    return accept


def _maybe_path(value: Any) -> Path | None:
    return None if value is None else Path(value).expanduser()


def _default_cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "tilewright"


def _default_config() -> Path:
    base = os.environ.get("XDG_CONFIG_HOME") or "~/.config"
    return Path(base).expanduser() / "tilewright"


dump: Final[Knob[Path | None]] = Knob(
    "dump",
    "TILEWRIGHT_DUMP",
    lambda: None,
    _maybe_path,
    "the folder that gets the program after each pass, as 05_unroll_loops.py",
)
debug: Final[Knob[int]] = Knob(
    "debug",
    "TILEWRIGHT_DEBUG",
    lambda: 0,
    _whole(0, 4),
    "what to do for someone who looks for a fault: 1 checks the program after each pass, 2 also keeps the code of "
    "each module (.ll, .opt.ll, .s) in the folder of TILEWRIGHT_DUMP or ./tilewright_debug, 3 also checks LLVM's "
    "work and takes nothing from the cache, 4 also leaves LLVM's optimisation out",
    changes_code=True,
)
llvm_level: Final[Knob[int | None]] = Knob(
    "llvm_level",
    "TILEWRIGHT_LLVM_LEVEL",
    lambda: None,
    _whole(0, 3),
    "how hard LLVM tries, whatever targets and contexts say: 0 compiles several times as fast, to slow code",
    changes_code=True,
)
time: Final[Knob[bool]] = Knob(
    "time", "TILEWRIGHT_TIME", lambda: False, _switch, "print what each pass took, after the last of them"
)
check: Final[Knob[bool]] = Knob(
    "check", "TILEWRIGHT_CHECK", lambda: False, _switch, "check the program after each pass"
)
num_threads: Final[Knob[int]] = Knob(
    "num_threads",
    "TILEWRIGHT_NUM_THREADS",
    usable_cpus,
    _whole(1, None),
    "how many threads a parallel loop runs on",
)
cache: Final[Knob[bool]] = Knob(
    "cache", "TILEWRIGHT_CACHE", lambda: True, _switch, "keep machine code on disk, and take it from there"
)
cache_dir: Final[Knob[Path]] = Knob(
    "cache_dir",
    "TILEWRIGHT_CACHE_DIR",
    _default_cache,
    lambda value: Path(value).expanduser(),
    "the folder of machine code that is kept",
)
cache_size: Final[Knob[int]] = Knob(
    "cache_size",
    "TILEWRIGHT_CACHE_SIZE",
    lambda: 1024,
    _whole(1, None),
    "how many MiB the folder may take; what was not used for longest goes first",
)
config_dir: Final[Knob[Path]] = Knob(
    "config_dir",
    "TILEWRIGHT_CONFIG_DIR",
    _default_config,
    lambda value: Path(value).expanduser(),
    "the folder of what belongs to the user: the figures of machines that `tilewright calibrate` measured",
)

versions: Final[Knob[int]] = Knob(
    "versions",
    "TILEWRIGHT_VERSIONS",
    lambda: 4,
    _whole(0, None),
    "how many versions for input sizes that recur a compiled model with dynamic sizes may have beside it, made in the "
    "background; 0 makes and uses none, and a model's answers then do not change in their rounding",
)

data_check: Final[Knob[str]] = Knob(
    "data_check",
    "TILEWRIGHT_DATA_CHECK",
    lambda: "check",
    _one_of("check", "clamp"),
    "what a compiled model does with an index outside of a tensor and with a zero by which integers are divided: "
    "`check` ends the call with an error that names the node (on GPUs the next one that waits for the device), `clamp` "
    "goes on with the nearest index inside, writes nothing outside, and divides as NumPy does",
)

_ALL: Final[dict[str, Knob[Any]]] = {
    k.name: k
    for k in (
        dump,
        debug,
        llvm_level,
        time,
        check,
        num_threads,
        cache,
        cache_dir,
        cache_size,
        config_dir,
        versions,
        data_check,
    )
}


def knobs() -> dict[str, Knob[Any]]:
    """All knobs by name."""
    return dict(_ALL)


@contextmanager
def using(**values: Any) -> Iterator[None]:
    """Hold several knobs inside a `with` statement: `using(time=True, num_threads=1)`."""
    unknown = [name for name in values if name not in _ALL]
    if unknown:
        raise ValueError(f"unknown knob {unknown[0]!r}; known are {', '.join(_ALL)}")
    with ExitStack() as stack:
        for name, value in values.items():
            stack.enter_context(_ALL[name].set(value))
        yield


def code_key() -> tuple[tuple[str, Any], ...]:
    """The knobs that change generated code, with their values: a part of every cache key."""
    return tuple((k.name, k.value) for k in _ALL.values() if k.changes_code)
