"""Records: a line of JSON for each measured configuration.

{"input": [target, template, arguments, {}], "config": {"index": …, "code_hash": …, "entity": [[knob, kind, value], …]},
 "result": [seconds, error, seconds in all, when], "version": 0.2, "tvm_version": …, "machine": …}

The lines are those of the classic stack, with the machine that measured added.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from ..files import write_whole
from ..ir.errors import UnsupportedError
from ..ir.serialize import read_json
from ..target import Target
from ..tune.errors import RecordError
from ..tune.measure.machines import fingerprint
from .measure import MeasureInput, MeasureResult
from .task.dispatcher import ApplyHistoryBest
from .task.space import ConfigEntity
from .task.task import Task

__all__ = [
    "AUTOTVM_LOG_VERSION",
    "ApplyHistoryBest",
    "MeasureInput",
    "MeasureResult",
    "decode",
    "encode",
    "load_from_buffer",
    "load_from_file",
    "measure_str_key",
    "pick_best",
    "split_workload",
]

AUTOTVM_LOG_VERSION = 0.2
_FAILED = 1e9  # the time of a failed measurement
logger = logging.getLogger("autotvm")


def measure_str_key(inp: MeasureInput, include_config: bool = True) -> str:
    """A key of an input: equal for equal target, task and (if `include_config`) configuration."""
    parts = [str(inp.target), inp.task.name, str(inp.task.args), str(inp.task.kwargs)]
    return "".join([*parts, str(inp.config)] if include_config else parts)


def encode(inp: MeasureInput, result: MeasureResult, protocol: str = "json") -> str:
    """A record as a line of JSON; `protocol` must be "json"."""
    _check_protocol(protocol)
    costs = [float(c) for c in result.costs] if result.error_no == 0 else [_FAILED]
    row = {
        "input": [str(inp.target), inp.task.name, inp.task.args, inp.task.kwargs],
        "config": inp.config.to_json_dict(),
        "result": [costs, int(result.error_no), float(result.all_cost), float(result.timestamp)],
        "version": AUTOTVM_LOG_VERSION,
        "tvm_version": _package_version(),
        "machine": getattr(inp.config, "machine", None) or fingerprint(target=inp.target),
    }
    return json.dumps(row)


def _package_version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("tilewright")
    except PackageNotFoundError:
        return "0"


def _check_protocol(protocol: str) -> None:
    if protocol == "pickle":
        raise UnsupportedError(
            'records are not pickled: reading such a file could run anything; use protocol="json"'
        )
    if protocol != "json":
        raise ValueError(f'there is no protocol {protocol!r} of records; there is "json"')


def _tuples(x: Any) -> Any:
    """Lists of JSON as the tuples that arguments are."""
    if isinstance(x, list):
        return tuple(_tuples(a) for a in x)
    return {k: _tuples(v) for k, v in x.items()} if isinstance(x, dict) else x


def decode(row: str, protocol: str = "json") -> tuple[MeasureInput, MeasureResult] | None:
    """The record of a line; None for a line of a version before 0.2, which does not name the template.

    The template need not be registered: the task is identified by its name and arguments.
    """
    _check_protocol(protocol)
    try:
        data = read_json(row, "the line", ValueError)
        if data.get("v", 0.2) < 0.2 or data.get("version", 0.2) < 0.2:
            logger.warning("a record of a version before 0.2 is ignored")
            return None
        target, name, args, kwargs = data["input"]
        task = Task(str(name), _tuples(args))
        task.kwargs, task.target = dict(kwargs), Target(str(target))
        config = ConfigEntity.from_json_dict(data["config"])
        config.machine = data.get("machine")
        costs, error_no, all_cost, timestamp = data["result"]
        result = MeasureResult(
            tuple(float(c) for c in costs), int(error_no), float(all_cost), float(timestamp)
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise RecordError(f"this is not a record: {type(error).__name__}: {error}: {row[:120]!r}") from None
    return MeasureInput(task.target, task, config), result


def load_from_buffer(file: Any) -> Iterator[tuple[MeasureInput, MeasureResult]]:
    """The records of an open file, or of any iterable of lines."""
    for number, line in enumerate(file, 1):
        if not line.strip() or line.startswith("#"):
            continue
        try:
            found = decode(line)
        except RecordError as error:
            name = getattr(file, "name", "the records")
            raise RecordError(f"{name}, line {number}: {error}") from None
        if found is not None:
            yield found


def load_from_file(filepath: Any) -> Iterator[tuple[MeasureInput, MeasureResult]]:
    """The records of a file, given by its path or open."""
    if not isinstance(filepath, (str, os.PathLike)):
        yield from load_from_buffer(filepath)
        return
    with open(filepath, encoding="utf-8") as file:
        yield from load_from_buffer(file)


def split_workload(in_file: str | os.PathLike[str], clean: bool = True) -> None:
    """Write the records of each workload to a file of its own beside the input: name.0.log, name.1.log, …

    With `clean`, only the first record of each configuration is written.
    """
    workloads: dict[str, dict[str, str]] = {}
    for inp, result in load_from_file(in_file):
        lines = workloads.setdefault(measure_str_key(inp, include_config=False), {})
        key = measure_str_key(inp) if clean else str(len(lines))
        lines.setdefault(key, encode(inp, result))
    stem = Path(in_file)
    for number, lines in enumerate(workloads.values()):
        path = stem.with_name(f"{stem.stem}.{number}{stem.suffix or '.log'}")
        write_whole(path, "".join(f"{line}\n" for line in lines.values()))


def pick_best(in_file: Any, out_file: str | os.PathLike[str]) -> None:
    """Write the best record of each workload and target to a file."""
    best: dict[str, tuple[MeasureInput, MeasureResult]] = {}
    pairs: Iterable[Any] = load_from_file(in_file)
    for inp, result in pairs:
        key = measure_str_key(inp, include_config=False)
        if result.error_no == 0 and (key not in best or np.mean(result.costs) < np.mean(best[key][1].costs)):
            best[key] = (inp, result)
    write_whole(out_file, "".join(f"{encode(inp, result)}\n" for inp, result in best.values()))


def main(argv: list[str] | None = None) -> None:
    """python -m tilewright.autotvm.record --mode pick --i in.json --o out.json"""
    import argparse

    parser = argparse.ArgumentParser(description="Records of autotvm: pick the best, or split by workload.")
    parser.add_argument("--mode", choices=("pick", "split"), default="pick")
    parser.add_argument("--i", required=True, help="the file of records")
    parser.add_argument("--o", help="the file to write (pick)")
    args = parser.parse_args(argv)
    if args.mode == "pick":
        pick_best(args.i, args.o or f"{args.i}.best.log")
    else:
        split_workload(args.i)


if __name__ == "__main__":
    main()
