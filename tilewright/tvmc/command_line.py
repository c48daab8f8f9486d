"""The work of the commands `compile`, `run` and `show`; their options are in `app.py`.

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
from contextlib import contextmanager, nullcontext
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..files import is_stream
from ..ir.errors import InternalError, TVMError
from ..support import size_text

if TYPE_CHECKING:
    from .app import Compile, Run, Show

FAILED, FAULT, INTERRUPTED, TERMINATED = 1, 70, 130, 143


class Terminated(KeyboardInterrupt):
    """The interrupt of a SIGTERM."""


class Desk:
    """The output of a command: results on stdout, progress and errors on stderr."""

    def __init__(self, as_json: bool, quiet: bool = False) -> None:
        self.as_json, self.quiet = as_json, quiet

    def note(self, text: str) -> None:
        """Print progress."""
        if not self.quiet:
            print(text, file=sys.stderr, flush=True)

    def result(self, data: dict[str, Any], text: str, written: Path | None = None) -> None:
        """Print the result; to stderr if the command has `written` a file to stdout."""
        where = sys.stderr if written is not None and _is_stdout(written) else sys.stdout
        print(json.dumps(data, indent=1, allow_nan=False) if self.as_json else text, file=where, flush=True)

    @contextmanager
    def working(self) -> Iterator[None]:
        """Turn errors into messages and exit codes."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("always", UserWarning)
                warnings.showwarning = lambda message, *_: self.note(f"warning: {message}")
                yield
        except BrokenPipeError:  # the reader of stdout has closed it
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
    """Whether a path is that of stdout."""
    try:
        return is_stream(path) and os.path.samestat(path.stat(), os.fstat(sys.stdout.fileno()))
    except (OSError, ValueError):
        return False


def _place(error: OSError) -> str:
    name = f"{error.filename}: " if error.filename else ""
    return f"{name}{error.strerror or error}"


# -- compile ------------------------------------------------------------------------------------
def compile_command(desk: Desk, given: Compile) -> None:
    """Import and compile a model, write the package, and report."""
    from ..relay.backend.executor import Executor
    from . import compile, load
    from .app import words
    from .compiler import check_path
    from .history import records_of
    from .pass_config import load_function, parse_configs
    from .shape_parser import parse_shape_string

    # Wrong options are reported before the work begins.
    shapes = parse_shape_string(given.shapes) if given.shapes else None
    check_path(given.output)
    _check_target(given.target, given.host)
    configs = parse_configs(given.pass_config)
    instruments = [load_function(name)() for name in given.instrument or ()]
    records = records_of(given.tuning_records, given.records_machine or None)
    desk.note(f"importing {given.model}")
    start = time.perf_counter()
    loaded = load(given.model, given.model_format or None, shapes)
    imported = time.perf_counter()
    desk.note(f"compiling {loaded.name} for {given.target}")
    package = compile(
        loaded,
        given.target,
        given.opt_level,
        package_path=given.output,
        disabled_pass=given.disabled,
        output_format=given.output_format,
        use_vm=given.use_vm or given.executor == "vm",
        executor=Executor("graph", {"link-params": True}) if given.link_params else None,
        tuning_records=records,
        cross=given.cross or None,
        cross_options=given.cross_options,
        pass_context_configs=configs,
        dump_code=given.dump_code or None,
        dump_offloads=given.dump_offloads,
        target_host=given.host or None,
        mod_name=given.module_name,
        instruments=instruments,
        print_pass_times=given.print_pass_times,
        print_ir_before=words(given.print_ir_before),
        print_ir_after=words(given.print_ir_after),
        **given.transforms(),
    )
    done = time.perf_counter()
    data = {
        "package": str(given.output),
        "bytes": os.path.getsize(package.package_path),
        "import_seconds": imported - start,
        "compile_seconds": done - imported,
        **_facts(package.about),
    }
    told = [f"  imported in {imported - start:.2f} s, compiled in {done - imported:.2f} s"]
    if records is not None:
        data["tuned"] = {"by_records": len(records.used), "without": sorted(set(records.missed.values()))}
        told.append(f"  {records.summary()}")
    desk.result(data, "\n".join([*_lines(data), *told]), given.output)


def _check_target(target: str, host: str) -> None:
    """Refuse a target before a model is imported."""
    from .compiler import target_of

    target_of(target, host or None)


def _facts(about: dict[str, Any]) -> dict[str, Any]:
    """The metadata of a package that is of interest to users."""
    return {key: about.get(key) for key in ("target", "executor", "inputs", "outputs", "steps", "memory")}


def _lines(data: dict[str, Any]) -> list[str]:
    """A package as lines of text."""
    machine = " on the virtual machine" if data["executor"] == "vm" else ""
    lines = [
        f"{data['package']}: {size_text(data['bytes'])}, {data['steps']} kernels{machine} for {data['target']}"
    ]
    lines += [f"  {word}{_tensor(t)}" for word, kind in _KINDS for t in data[kind] or ()]
    memory = ", ".join(f"{name} {size_text(size)}" for name, size in (data["memory"] or {}).items())
    return [*lines, f"  memory: {memory}"]


_KINDS = (("input ", "inputs"), ("", "outputs"))


def _tensor(t: dict[str, Any]) -> str:
    return f"{t['name']}: {t['dtype']}[{', '.join(map(str, t['shape']))}]"


# -- run ----------------------------------------------------------------------------------------
def run_command(desk: Desk, given: Run) -> None:
    """Load and run a package, write the results, and report."""
    from .. import config
    from . import TVMCException, TVMCPackage, compile, load, run
    from .frontends import SUFFIXES
    from .shape_parser import parse_shape_string

    package = given.package
    if given.project_dir or given.device == "micro":
        raise TVMCException(
            "tilewright run: projects of microcontrollers (--project-dir, --device micro) are not supported, as there "
            "is no C runtime for them; compile the model to a library with a C header (--dump-code h) for a board"
        )
    shapes = parse_shape_string(given.shapes) if given.shapes else None
    if given.profile_output is not None:
        _check_profile(given.profile_output)
    if package.suffix in SUFFIXES and package.suffix != ".tar" and package.is_file():
        desk.note(f"compiling {package}")
        opened = compile(load(package, shape_dict=shapes), target=given.device.replace("cpu", "llvm"))
    else:
        opened = TVMCPackage(package)
    with config.num_threads.set(given.threads) if given.threads else nullcontext():
        result = run(
            opened,
            given.device,
            inputs=given.inputs,
            fill_mode=given.fill_mode,
            benchmark=given.print_time,
            repeat=given.repeat,
            number=given.number,
            profile=given.profile or given.profile_output is not None,
            end_to_end=given.end_to_end,
            shape_dict=shapes,
            **_other_machine(given.tracker, given.key),
        )
    if result.filled:
        desk.note(f"not given, so filled ({given.fill_mode}): {', '.join(result.filled)}")
    if given.outputs is not None:
        result.save(given.outputs)
        desk.note(f"results written to {given.outputs}")
    if given.profile_output is not None and result.profile is not None:
        result.profile.save(given.profile_output)
        desk.note(f"profile written to {given.profile_output}")
    data, text = _results(result, given.top)
    written = str(given.outputs) if given.outputs is not None else None
    desk.result({"package": str(package), "written": written, **data}, text)


def _check_profile(path: Path) -> None:
    """Refuse a file for a profile before the model runs."""
    from ..runtime.profiling import writer_of
    from .compiler import check_path
    from .errors import TVMCException

    try:
        writer_of(path)
    except ValueError as error:
        raise TVMCException(str(error)) from None
    check_path(path)


def _other_machine(address: str, key: str) -> dict[str, Any]:
    """The remote machine to run on: a server, or (with a key) a server that a tracker leases."""
    from .tracker import tracker_host_port_from_cli

    host, port = tracker_host_port_from_cli(address)
    return (
        {"hostname": host, "port": port, "rpc_key": key or None} if host else {"rpc_key": key} if key else {}
    )


def _results(result: Any, top: int) -> tuple[dict[str, Any], str]:
    """The results of a run, as data and as text."""
    data: dict[str, Any] = {
        "filled": list(result.filled),
        "outputs": {n: {"dtype": str(a.dtype), "shape": list(a.shape)} for n, a in result.outputs.items()},
    }
    text = result.text(_profile_text(result.profile))
    if top:
        best = {n: _top(a, top) for n, a in result.outputs.items()}
        for n, rows in best.items():
            data["outputs"][n]["top"] = [{"index": i, "value": _plain(v)} for i, v in rows]
        shown = [f"{n} [{i}] {v:.6g}" for n, rows in best.items() for i, v in rows]
        text = "\n".join([text, "", *shown])
    if result.times:
        figures = ("mean", "median", "min", "max", "std", "results")
        data["seconds"] = {name: getattr(result.times, name) for name in figures}
    if result.profile is not None:
        data["profile"] = result.profile.rows()
    return data, text


def _profile_text(profile: Any) -> str:
    """A profile as text; on a terminal it is as wide as the terminal."""
    if profile is None or not sys.stdout.isatty():
        return "" if profile is None else str(profile)
    from rich.console import Console

    console = Console()
    with console.capture() as printed:
        console.print(profile)
    return str(printed.get())


def _plain(value: float) -> float | str:
    """A number in the form of JSON, which has no infinity."""
    return value if isfinite(value) else str(value)


def _top(values: Any, count: int) -> list[tuple[int, float]]:
    """The greatest values, with their indices in the flat array."""
    flat = values.reshape(-1)
    order = (-flat.astype("float64")).argsort(kind="stable")[:count]
    return [(int(i), float(flat[i])) for i in order if flat[i] == flat[i]]


# -- show ---------------------------------------------------------------------------------------
def show_command(desk: Desk, given: Show) -> None:
    """Show the contents of a model."""
    from ..runtime.archive import PACKAGE, read_metadata
    from . import TVMCException, load
    from .report import describe
    from .shape_parser import parse_shape_string

    model = given.model
    shapes = parse_shape_string(given.shapes) if given.shapes else None
    if not given.model_format and model.suffix == ".tar" and model.is_file():
        about = read_metadata(model)
        if about["kind"] == PACKAGE:
            _show_package(desk, model)
            return
    desk.note(f"importing {model}")
    loaded = load(model, given.model_format or None, shapes)
    if given.text:
        desk.result({"name": loaded.name, "text": loaded.summary()}, loaded.summary())
        return
    if given.fuse:
        desk.note(f"fusing for {given.target}")
    report = describe(loaded, given.target, given.fuse)
    if given.node:
        report = report.only(given.node)
        if not report.operators and not report.groups:
            raise TVMCException(
                f"--node {given.node}: no node or operator of {model} has this in its name; --all lists them"
            )
    if desk.as_json:
        desk.result(report.plain(), "")
    else:
        _show(report, given.every or bool(given.node))


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
    for name, kind in report.outputs.items():
        say(f"  {name}: {kind}")
    count, size = report.parameters, size_text(report.parameter_bytes)
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
    with_nodes = every and any(k.nodes for k in kernels)
    if with_nodes:
        table.add_column("node", overflow="fold")
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
        cells = [group[0].name, str(len(group)), _flops(flops), share, shapes]
        table.add_row(*map(Text, [*cells, ", ".join(group[0].nodes)] if with_nodes else cells))
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
