"""What the commands do. The commands themselves, with their options, are in `app.py`.

progress and errors -> stderr          results -> stdout, as text or (--json) as JSON
exit codes: 0 success, 1 refused or failed, 2 wrong usage, 70 a bug in tilewright, 130 interrupted,
143 ended by SIGTERM (tune)
"""

from __future__ import annotations

import json
import os
import sys
import time
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from math import isfinite
from pathlib import Path
from typing import Any

from ..files import is_stream
from ..ir.errors import InternalError, TVMError

FAILED, FAULT, INTERRUPTED, TERMINATED = 1, 70, 130, 143


class Terminated(KeyboardInterrupt):
    """The end that SIGTERM asks for."""


class Desk:
    """The output of a command: results on stdout, progress and errors on stderr."""

    def __init__(self, as_json: bool, quiet: bool = False) -> None:
        self.as_json, self.quiet = as_json, quiet

    def note(self, text: str) -> None:
        """Progress."""
        if not self.quiet:
            print(text, file=sys.stderr, flush=True)

    def result(self, data: dict[str, Any], text: str, written: Path | None = None) -> None:
        """What the command was asked for; beside what it has `written`, be that to stdout."""
        where = sys.stderr if written is not None and _is_stdout(written) else sys.stdout
        print(json.dumps(data, indent=1, allow_nan=False) if self.as_json else text, file=where, flush=True)

    @contextmanager
    def working(self) -> Iterator[None]:
        """Turn what goes wrong into a message and an exit code."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("always", UserWarning)
                warnings.showwarning = lambda message, *_: self.note(f"warning: {message}")
                yield
        except BrokenPipeError:  # somebody closed the pipe that we write to
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise SystemExit(FAILED) from None
        except Terminated:
            self.fail("Terminated", "terminated", TERMINATED)
        except KeyboardInterrupt:
            self.fail("Interrupted", "interrupted", INTERRUPTED)
        except InternalError as error:
            self.fail("InternalError", str(error), FAULT)
        except TVMError as error:
            self.fail(type(error).__name__, str(error), FAILED)
        except OSError as error:
            self.fail(type(error).__name__, _place(error), FAILED)
        except MemoryError:
            self.fail("MemoryError", "there is not enough memory for this model", FAILED)
        except Exception as error:
            if os.environ.get("TILEWRIGHT_DEBUG", "0") not in ("", "0"):
                raise
            where = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
            told = "this is a bug in tilewright, please report it; TILEWRIGHT_DEBUG=1 shows where it happened"
            self.fail(type(error).__name__, f"{where}\n{told}", FAULT)

    def fail(self, kind: str, message: str, code: int) -> None:
        if self.as_json:
            print(json.dumps({"error": {"kind": kind, "message": message}}, indent=1), flush=True)
        print(f"error: {message}", file=sys.stderr, flush=True)
        raise SystemExit(code)


def _is_stdout(path: Path) -> bool:
    """Whether a name stands for what is stdout already."""
    try:
        return is_stream(path) and os.path.samestat(path.stat(), os.fstat(sys.stdout.fileno()))
    except (OSError, ValueError):
        return False


def _place(error: OSError) -> str:
    name = f"{error.filename}: " if error.filename else ""
    return f"{name}{error.strerror or error}"


# -- compile ------------------------------------------------------------------------------------
def compile_command(
    desk: Desk,
    model: Path,
    target: str,
    output: Path,
    shapes: str,
    model_format: str,
    opt_level: int,
    disabled: str,
    output_format: str,
    desired_layout: str,
    use_vm: bool,
    tuning_records: Sequence[Path] | None,
    records_machine: str,
    cross: str,
    cross_options: str,
    pass_config: Sequence[str] | None,
    dump_code: str,
    executor: str,
) -> None:
    """Import and compile a model, write the package, and report."""
    from ..relay.build_module import as_target
    from . import compile, load
    from .compiler import check_path
    from .shape_parser import parse_shape_string

    # What can be seen to be wrong is said before the work begins.
    given = parse_shape_string(shapes) if shapes else None
    check_path(output)
    as_target(target)
    configs = _configs(pass_config or ())
    records = _records(tuning_records or (), records_machine)
    desk.note(f"importing {model}")
    start = time.perf_counter()
    loaded = load(model, model_format or None, given)
    imported = time.perf_counter()
    desk.note(f"compiling {loaded.name} for {target}")
    package = compile(
        loaded,
        target,
        opt_level,
        package_path=output,
        disabled_pass=[name.strip() for name in disabled.split(",") if name.strip()],
        output_format=output_format,
        desired_layout=desired_layout or None,
        use_vm=use_vm or executor == "vm",
        tuning_records=records,
        cross=cross or None,
        cross_options=cross_options.split(),
        pass_context_configs=configs,
        dump_code=dump_code or None,
    )
    done = time.perf_counter()
    about = package.about
    data = {
        "package": str(output),
        "bytes": os.path.getsize(package.package_path),
        "import_seconds": imported - start,
        "compile_seconds": done - imported,
        **_facts(about),
    }
    told = [f"  imported in {imported - start:.2f} s, compiled in {done - imported:.2f} s"]
    if records is not None:
        data["tuned"] = {"by_records": len(records.used), "without": sorted(set(records.missed.values()))}
        told.append(f"  {records.summary()}")
    desk.result(data, "\n".join([*_lines(data), *told]), output)


def _configs(given: Sequence[str]) -> dict[str, Any]:
    """Options of passes from `name=value`; a value is a number, true, false, or a word."""
    from .errors import TVMCException

    found: dict[str, Any] = {}
    for text in given:
        name, sign, value = text.partition("=")
        if not sign or not name.strip():
            raise TVMCException(
                f"--pass-config {text!r}: it is name=value, as in --pass-config tir.disable_vectorize=true"
            )
        low = value.strip().lower()
        number = low.lstrip("+-").isdigit()
        found[name.strip()] = int(low) if number else {"true": True, "false": False}.get(low, value.strip())
    return found


def _records(paths: Sequence[Path], machine: str) -> Any:
    """The records to compile with; logs of templates are applied by their own dispatcher."""
    if not paths:
        return None
    from .history import records_of

    return records_of(paths, machine or None)


def _facts(about: dict[str, Any]) -> dict[str, Any]:
    """The metadata of a package that is of interest to users."""
    return {key: about.get(key) for key in ("target", "executor", "inputs", "outputs", "steps", "memory")}


def _lines(data: dict[str, Any]) -> list[str]:
    """A package in words."""
    machine = " on the virtual machine" if data["executor"] == "vm" else ""
    lines = [
        f"{data['package']}: {_bytes(data['bytes'])}, {data['steps']} kernels{machine} for {data['target']}"
    ]
    lines += [f"  {word}{_tensor(t)}" for word, kind in _KINDS for t in data[kind] or ()]
    memory = ", ".join(f"{name} {_bytes(size)}" for name, size in (data["memory"] or {}).items())
    return [*lines, f"  memory: {memory}"]


_KINDS = (("input ", "inputs"), ("", "outputs"))


def _tensor(t: dict[str, Any]) -> str:
    return f"{t['name']}: {t['dtype']}[{', '.join(map(str, t['shape']))}]"


def _bytes(size: float) -> str:
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.2f} GiB"


# -- run ----------------------------------------------------------------------------------------
def run_command(
    desk: Desk,
    package: Path,
    device: str,
    inputs: Path | None,
    outputs: Path | None,
    fill_mode: str,
    print_time: bool,
    profile: bool,
    repeat: int,
    number: int,
    top: int,
    threads: int,
    shapes: str,
    tracker: str,
    key: str,
) -> None:
    """Load and run a package, write the results, and report."""
    from contextlib import ExitStack

    from .. import config
    from . import TVMCException, TVMCPackage, run
    from .frontends import SUFFIXES
    from .shape_parser import parse_shape_string

    sizes = parse_shape_string(shapes) if shapes else None
    if package.suffix in SUFFIXES and package.suffix != ".tar" and package.is_file():
        raise TVMCException(
            f"{package}: is a model; compile it first: tilewright compile {package} -o net.tar"
        )
    opened = TVMCPackage(package)
    with ExitStack() as stack:
        if threads:
            stack.enter_context(config.num_threads.set(threads))
        result = run(
            opened,
            device,
            inputs=inputs,
            fill_mode=fill_mode,
            benchmark=print_time,
            repeat=repeat,
            number=number,
            profile=profile,
            shape_dict=sizes,
            **_other_machine(tracker, key),
        )
    if result.filled:
        desk.note(f"not given, so filled ({fill_mode}): {', '.join(result.filled)}")
    if outputs is not None:
        result.save(outputs)
        desk.note(f"results written to {outputs}")
    data, text = _results(result, top)
    written = str(outputs) if outputs is not None else None
    desk.result({"package": str(package), "written": written, **data}, text)


def _other_machine(address: str, key: str) -> dict[str, Any]:
    """The remote machine to run on: a server, or (with a key) a server that a tracker leases."""
    from .errors import TVMCException

    if not address and not key:
        return {}
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        raise TVMCException(f"--rpc-tracker {address!r}: it is HOST:PORT, as in --rpc-tracker board:9190")
    return {"hostname": host, "port": int(port), "rpc_key": key or None}


def _results(result: Any, top: int) -> tuple[dict[str, Any], str]:
    """The results of a run, as data and as text."""
    data: dict[str, Any] = {
        "filled": list(result.filled),
        "outputs": {n: {"dtype": str(a.dtype), "shape": list(a.shape)} for n, a in result.outputs.items()},
    }
    text = str(result)
    if top:
        best = {n: _top(a, top) for n, a in result.outputs.items()}
        for n, rows in best.items():
            data["outputs"][n]["top"] = [{"index": i, "value": _plain(v)} for i, v in rows]
        shown = [f"{n} [{i}] {v:.6g}" for n, rows in best.items() for i, v in rows]
        text = "\n".join([text, "", *shown])
    if result.times is not None:
        figures = ("mean", "median", "min", "max", "std", "results")
        data["seconds"] = {name: getattr(result.times, name) for name in figures}
    if result.profile is not None:
        data["profile"] = [
            {"name": r.name, "kernel": r.kernel, "seconds": r.seconds, "results": r.shapes}
            for r in result.profile.rows
        ]
    return data, text


def _plain(value: float) -> float | str:
    """A number as JSON can have it: there is no infinity."""
    return value if isfinite(value) else str(value)


def _top(values: Any, count: int) -> list[tuple[int, float]]:
    """The greatest values, with their places in the flat array."""
    flat = values.reshape(-1)
    order = (-flat.astype("float64")).argsort(kind="stable")[:count]
    return [(int(i), float(flat[i])) for i in order if flat[i] == flat[i]]


# -- show ---------------------------------------------------------------------------------------
def show_command(
    desk: Desk,
    model: Path,
    target: str,
    shapes: str,
    model_format: str,
    every: bool,
    text: bool,
    fuse: bool,
) -> None:
    """Show the contents of a model."""
    from . import load
    from .archive import PACKAGE, read_metadata
    from .report import describe
    from .shape_parser import parse_shape_string

    given = parse_shape_string(shapes) if shapes else None
    if not model_format and model.suffix == ".tar" and model.is_file():
        about = read_metadata(model)
        if about["kind"] == PACKAGE:
            _show_package(desk, model)
            return
    desk.note(f"importing {model}")
    loaded = load(model, model_format or None, given)
    if text:
        desk.result({"name": loaded.name, "text": loaded.summary()}, loaded.summary())
        return
    if fuse:
        desk.note(f"fusing for {target}")
    report = describe(loaded, target, fuse)
    if desk.as_json:
        desk.result(report.plain(), "")
    else:
        _show(report, every)


def _show_package(desk: Desk, path: Path) -> None:
    """Show the metadata of a package; none of its code is run."""
    from . import TVMCPackage

    about = TVMCPackage(path).about
    data = {"package": str(path), "bytes": path.stat().st_size, **_facts(about)}
    desk.result(data, "\n".join(_lines(data)))


def _show(report: Any, every: bool) -> None:
    from rich.console import Console

    console = Console(width=None if sys.stdout.isatty() else 120)

    def say(text: str) -> None:
        console.print(text, highlight=False, markup=False, soft_wrap=True)

    say(report.name)
    for name, kind in report.inputs.items():
        say(f"  input {name}: {kind}")
    for i, kind in enumerate(report.outputs):
        say(f"  output_{i}: {kind}")
    count, size = report.parameters, _bytes(report.parameter_bytes)
    say(f"  {count:,} parameter{'' if count == 1 else 's'}, {size}; {_flops(report.flops)} a run")
    console.print(_table(report.operators, report.flops, "operator", every))
    if report.groups:
        console.print(_table(report.groups, None, f"{len(report.groups)} kernels after fusion", every))
    elif report.note:
        say(f"not fused: {report.note}")


def _table(kernels: Sequence[Any], whole: float | None, title: str, every: bool) -> Any:
    """One row for each operator, or one row for each name of an operator."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    from .report import total

    whole = total(kernels) if whole is None else whole
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column(title, overflow="fold")
    table.add_column("count", justify="right")
    table.add_column("FLOPs", justify="right", no_wrap=True)
    table.add_column("%", justify="right")
    table.add_column("results", overflow="fold")
    if every:
        rows = [([k], ", ".join(k.outputs)) for k in kernels]
    else:
        named: dict[str, list[Any]] = {}
        for k in kernels:
            named.setdefault(k.name, []).append(k)
        rows = [(group, _shapes(group)) for group in named.values()]
        rows.sort(key=lambda row: -(total(row[0]) or 0.0))
    for group, shapes in rows:
        flops = total(group)
        share = f"{100 * flops / whole:.1f}" if flops is not None and whole else ""
        # As texts: in a string, [n, 3] would be markup.
        table.add_row(*map(Text, (group[0].name, str(len(group)), _flops(flops), share, shapes)))
    return table


def _shapes(group: Sequence[Any]) -> str:
    found = Counter(", ".join(k.outputs) for k in group)
    shown = [text if times == 1 else f"{times} x {text}" for text, times in found.most_common(3)]
    return "\n".join(shown + ([f"and {len(found) - 3} other shapes"] if len(found) > 3 else []))


def _flops(value: float | None) -> str:
    if value is None:
        return "?"
    for unit in ("", "K", "M", "G"):
        if value < 1000:
            return f"{value:.2f} {unit}FLOP" if unit else f"{value:.0f} FLOP"
        value /= 1000
    return f"{value:.2f} TFLOP"
