"""Fuzzers: programs that try to break tilewright with random input, for as long as somebody lets them.

A fuzzer is a function with a name, in a file `fuzz_*.py` of this folder. It makes one attempt from a random number
generator and returns in a word or two how that ended ("refused", "equal", …), for the counts:

    @fuzzer("params", seconds=10)
    def params(rng: random.Random) -> str:
        '''Parameter files with damaged bytes: refused by a LoadError, or the values that are there.'''
        …
        return "refused"

An attempt that tries many things at once returns how many of them ended how, `Counter({"schedules": 20, …})`.
What is wrong with the input is an error of ours, `except TVMError as error: return refused(error)`.
Any exception that leaves it, a signal, a hang or too much memory is a finding, with the seed that shows it again.
`python -m fuzz` in `tests/` (or `make fuzz MINUTES=10`) runs them all in worker processes; `test_fuzz.py` makes a
few attempts with each in `make test`.
"""

from __future__ import annotations

import importlib
import pkgutil
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from tilewright.error import InternalError, TVMError

Outcome = str | Counter[str]
Attempt = Callable[[random.Random], Outcome]


@dataclass(frozen=True)
class Fuzzer:
    """One attempt with random input, and what it may take: seconds, and GiB of memory beyond what is loaded."""

    name: str
    attempt: Attempt
    seconds: float
    gib: float
    short: int  # attempts in the tests; `make test` takes a third of them
    share: float  # of the time, where one is usual: more for what is slow, or has much to go through

    def run(self, seed: int) -> Outcome:
        """The outcome of the attempt that this seed makes."""
        return self.attempt(random.Random(f"{self.name}:{seed}"))


_FUZZERS: dict[str, Fuzzer] = {}


def fuzzer(
    name: str, *, seconds: float = 20, gib: float = 4, short: int = 20, share: float = 1
) -> Callable[[Attempt], Attempt]:
    """Register a function as the fuzzer of this name."""

    def register(attempt: Attempt) -> Attempt:
        if name in _FUZZERS and _FUZZERS[name].attempt.__module__ != attempt.__module__:
            raise ValueError(f"two fuzzers are called {name!r}")
        _FUZZERS[name] = Fuzzer(name, attempt, seconds, gib, short, share)
        return attempt

    return register


def refused(error: TVMError, outcome: str = "refused") -> str:
    """The outcome of an error of ours, unless it says itself that it is a fault of the compiler."""
    if isinstance(error, InternalError):
        raise error
    return outcome


def fuzzers() -> dict[str, Fuzzer]:
    """All fuzzers of this folder, by name."""
    for file in pkgutil.iter_modules(__path__):
        if file.name.startswith("fuzz_"):
            importlib.import_module(f"{__name__}.{file.name}")
    return dict(sorted(_FUZZERS.items()))
