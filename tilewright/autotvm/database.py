"""Databases of records."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from ..absent import absent
from .measure import MeasureInput, MeasureResult
from .record import decode, encode, load_from_file, measure_str_key


class Database:
    """Results by their inputs."""

    def load(self, inp: MeasureInput, get_all: bool = False) -> Any:
        """The last result of an input, or all of them if `get_all`; None if there is none."""
        raise NotImplementedError

    def save(self, inp: MeasureInput, res: MeasureResult, extend: bool = False) -> None:
        """Store a result: in addition to existing ones if `extend`, else in their place."""
        raise NotImplementedError


class DummyDatabase(Database):
    """Records in memory, as the lines of a file."""

    def __init__(self, records: Iterable[tuple[MeasureInput, MeasureResult]] = ()) -> None:
        self.db: dict[str, list[str]] = {}
        for inp, res in records:
            self.save(inp, res, extend=True)

    @staticmethod
    def of_file(path: Any) -> DummyDatabase:
        """The records of a file."""
        return DummyDatabase(load_from_file(path))

    def load(self, inp: MeasureInput, get_all: bool = False) -> Any:
        lines = self.db.get(measure_str_key(inp))
        if not lines:
            return None
        found = [pair[1] for pair in map(decode, lines) if pair is not None]
        return found if get_all else found[-1]

    def save(self, inp: MeasureInput, res: MeasureResult, extend: bool = False) -> None:
        key, line = measure_str_key(inp), encode(inp, res)
        self.db[key] = [*(self.db.get(key, []) if extend else []), line]

    def filter(
        self, func: Callable[[MeasureInput, list[MeasureResult]], Any]
    ) -> list[tuple[MeasureInput, list[MeasureResult]]]:
        """The inputs with all of their results for which `func(input, results)` is true."""
        out = []
        for lines in self.db.values():
            pairs = [pair for pair in map(decode, lines) if pair is not None]
            results = [result for _, result in pairs]
            if pairs and func(pairs[0][0], results):
                out.append((pairs[0][0], results))
        return out

    def flush(self) -> None:
        """Remove all records."""
        self.db.clear()


class RedisDatabase(Database):
    """Records on a Redis server, which is not supported."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        absent("autotvm.database.RedisDatabase")()


def filter_inputs(
    db: DummyDatabase, measure_inputs: Iterable[MeasureInput], retry: bool = False
) -> tuple[list[MeasureInput], list[tuple[MeasureInput, MeasureResult]]]:
    """The inputs without a result in a database (and, if `retry`, those that failed), and the results of the others."""
    partial, done = [], []
    for inp in measure_inputs:
        found = db.load(inp)
        if found is None or (retry and found.error_no != 0):
            partial.append(inp)
        else:
            done.append((inp, found))
    return partial, done
