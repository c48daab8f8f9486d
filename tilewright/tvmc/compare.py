"""`tilewright bench` and `tilewright check`: a model beside another engine.

Each engine has a process of its own, so that thread pools do not disturb each other. They are timed in turns, so that a
drift of the machine meets all alike.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import statistics
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..model.compiling import compile
from ..runtime.errors import TVMError
from .errors import TVMCException
from .runner import generate_tensor_data, load_inputs
from .shape_parser import parse_shape_string

if TYPE_CHECKING:
    from .app import Bench, Check
    from .command_line import Desk

Arrays = Mapping[str, Any]
_OURS = "tilewright"


# ---------------------------------------------------------------------------- engines
class _Tilewright:
    """The compiled model."""

    def __init__(self, path: str, inputs: Arrays, options: Mapping[str, Any]) -> None:
        fixed = dict(inputs) if options.get("fixed", True) else None
        self.model = compile(path, fixed, target=options.get("target"))

    def run(self, inputs: Arrays) -> dict[str, Any]:
        return self.model.run(inputs)


class _OnnxRuntime:
    """A session of onnxruntime on the CPU."""

    def __init__(self, path: str, inputs: Arrays, options: Mapping[str, Any]) -> None:
        import onnxruntime

        chosen = onnxruntime.SessionOptions()
        chosen.intra_op_num_threads = int(options.get("threads", 0))
        chosen.log_severity_level = 3
        self.session = onnxruntime.InferenceSession(path, chosen, providers=["CPUExecutionProvider"])
        self.names = [o.name for o in self.session.get_outputs()]

    def run(self, inputs: Arrays) -> dict[str, Any]:
        return dict(zip(self.names, self.session.run(None, dict(inputs)), strict=True))


class _OpenVINO:
    """A compiled model of OpenVINO on the CPU."""

    def __init__(self, path: str, inputs: Arrays, options: Mapping[str, Any]) -> None:
        import openvino

        core = openvino.Core()
        settings = {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": "f32"}
        if options.get("threads"):
            settings["INFERENCE_NUM_THREADS"] = str(options["threads"])
        model = core.read_model(path)
        model.reshape({name: list(np.shape(value)) for name, value in inputs.items()})
        self.model = core.compile_model(model, "CPU", settings)
        self.request = self.model.create_infer_request()

    def run(self, inputs: Arrays) -> dict[str, Any]:
        made = self.request.infer(dict(inputs))
        return {o.any_name: np.array(made[o]) for o in self.model.outputs}


_ENGINES: dict[str, Any] = {_OURS: _Tilewright, "onnxruntime": _OnnxRuntime, "openvino": _OpenVINO}


def _work(pipe: Any, name: str, path: str, inputs: Arrays, options: Mapping[str, Any]) -> None:
    """The process of an engine: it loads the model, then answers how long a number of runs takes."""
    from .. import config

    try:
        with config.using(num_threads=options["threads"]) if options.get("threads") else ExitStack():
            start = time.perf_counter()
            engine = _ENGINES[name](path, inputs, options)
            loaded = time.perf_counter() - start
            engine.run(inputs)
            first = time.perf_counter() - start
            pipe.send(("ready", loaded, first, engine.run(inputs)))
            while (count := pipe.recv()) is not None:
                start = time.perf_counter()
                for _ in range(count):
                    engine.run(inputs)
                pipe.send((time.perf_counter() - start) / count)
    except ModuleNotFoundError as error:
        pipe.send(("failed", f"it needs the package {error.name!r}: pip install {error.name}", 0, {}))
    except (TVMError, RuntimeError, ValueError, TypeError, OSError) as error:  # the parent says whose it is
        pipe.send(
            ("failed", f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}", 0, {})
        )
    except (EOFError, KeyboardInterrupt):
        pass


class Engine:
    """An engine in a process of its own, with a model loaded. The process is stopped while it is not asked: threads
    that wait for work would take the cores of the other engines."""

    def __init__(self, name: str, path: Path, inputs: Arrays, options: Mapping[str, Any]) -> None:
        self.name = name
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(
            target=_work, args=(theirs, name, str(path), dict(inputs), dict(options)), daemon=True
        )
        self._process.start()
        theirs.close()
        try:
            state, self.loaded, self.first, self.results = self._pipe.recv()
        except EOFError:
            raise TVMCException(f"{name}: its process ended while it loaded {path}") from None
        if state == "failed":
            self.close()
            raise TVMCException(f"{name} cannot run {path}: {self.loaded}")
        self._signal("SIGSTOP")

    def _signal(self, name: str) -> None:
        number, pid = getattr(signal, name, None), self._process.pid
        if number is not None and pid is not None and self._process.is_alive():
            os.kill(pid, number)

    def seconds(self, count: int) -> float:
        """The mean time of `count` runs."""
        self._signal("SIGCONT")
        self._pipe.send(count)
        told = float(self._pipe.recv())
        self._signal("SIGSTOP")
        return told

    def close(self) -> None:
        self._signal("SIGCONT")
        self._process.terminate()
        self._process.join()


# ---------------------------------------------------------------------------- inputs and errors
def given_inputs(path: Path, file: Path | None, shapes: str, fill: str) -> dict[str, Any]:
    """The inputs of a file, and generated ones for the others; dynamic sizes are in `shapes`."""
    import onnx

    graph = onnx.load(str(path), load_external_data=False).graph
    stored = {i.name for i in graph.initializer}
    known = dict(load_inputs(file)) if file is not None else {}
    sizes = parse_shape_string(shapes) if shapes else {}
    for value in graph.input:
        if value.name in stored or value.name in known:
            continue
        tensor = value.type.tensor_type
        dims = [d.dim_value if d.HasField("dim_value") else d.dim_param or None for d in tensor.shape.dim]
        chosen = sizes.get(value.name, dims)
        if not all(isinstance(d, int) for d in chosen):
            wanted, sized = (
                ", ".join(map(str, s)) for s in (dims, [d if isinstance(d, int) else 1 for d in dims])
            )
            raise TVMCException(
                f"{path}: the input {value.name!r} has the dynamic shape [{wanted}]: give sizes, --shapes "
                f'"{value.name}:[{sized}]", or values, --inputs'
            )
        kind = onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type)
        known[value.name] = generate_tensor_data(tuple(chosen), np.dtype(kind).name, fill)
    return known


def compared(found: Any, wanted: Any) -> dict[str, Any]:
    """How far an array is from another: the largest error, where it is, and relative to the largest value."""
    found, wanted = np.asarray(found), np.asarray(wanted)
    if found.shape != wanted.shape:
        return {
            "error": float("inf"),
            "relative": float("inf"),
            "at": None,
            "why": f"shape {list(found.shape)}",
        }
    if not found.size:
        return {"error": 0.0, "relative": 0.0, "at": None}
    mine, theirs = found.astype("float64"), wanted.astype("float64")
    with np.errstate(all="ignore"):
        apart = np.abs(mine - theirs)
    apart = np.where((mine == theirs) | (np.isnan(mine) & np.isnan(theirs)), 0, apart)
    apart = np.where(np.isnan(apart), np.inf, apart)
    at = np.unravel_index(int(apart.argmax()), apart.shape)
    finite = np.abs(theirs[np.isfinite(theirs)])
    scale = float(finite.max()) if finite.size else 0.0
    error = float(apart[at])
    return {"error": error, "relative": error / scale if scale else error, "at": [int(i) for i in at]}


# ---------------------------------------------------------------------------- bench
def bench_command(desk: Desk, given: Bench) -> None:
    """Time a model beside other engines."""
    others = _named(given.against)
    if not given.against and find_spec("onnxruntime") is not None:
        others = ["onnxruntime"]
    elif not others:
        desk.note("onnxruntime is not installed, so tilewright is timed alone")
    engines = [_OURS, *others]
    _refuse_other_models(given.model)
    inputs = given_inputs(given.model, given.inputs, given.shapes, given.fill_mode)
    options = {"threads": given.threads, "target": given.target or None, "fixed": not given.dynamic}
    with ExitStack() as stack:
        made = []
        for name in engines:
            desk.note(f"{name}: loading {given.model}")
            made.append(stack.enter_context(closing(Engine(name, given.model, inputs, options))))
        number = max(1, int(0.05 / max(1e-6, made[0].seconds(1))))
        samples: dict[str, list[float]] = {e.name: [] for e in made}
        for turn in range(given.repeat):
            for i in range(len(made)):
                engine = made[(turn + i) % len(made)]
                samples[engine.name].append(engine.seconds(number))
    rows = []
    ours = statistics.median(samples[_OURS])
    for e in made:
        errors = [
            compared(made[0].results[n], v)["relative"] for n, v in e.results.items() if n in made[0].results
        ]
        median = statistics.median(samples[e.name])
        rows.append(
            {
                "engine": e.name, "median_seconds": median, "min_seconds": min(samples[e.name]), "ratio": median / ours,
                "load_seconds": e.loaded, "first_answer_seconds": e.first, "relative_error": max(errors, default=None),
            }
        )  # fmt: skip
    data = {
        "model": str(given.model),
        "threads": given.threads,
        "repeat": given.repeat,
        "number": number,
        "engines": rows,
    }
    desk.result(data, _table(str(given.model), rows))


def _named(text: str) -> list[str]:
    names = [w.strip() for w in text.split(",") if w.strip()]
    if unknown := [n for n in names if n not in _ENGINES or n == _OURS]:
        raise TVMCException(
            f"--against {unknown[0]}: known are {', '.join(n for n in _ENGINES if n != _OURS)}"
        )
    return names


def _refuse_other_models(path: Path) -> None:
    if not path.is_file():
        raise TVMCException(f"{path}: there is no such file")
    if path.suffix != ".onnx":
        raise TVMCException(f"{path}: engines are compared on ONNX models (.onnx); export it to ONNX first")


def _table(title: str, rows: Sequence[Mapping[str, Any]]) -> str:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title, box=box.SIMPLE, title_justify="left")
    for name in ("engine", "median", "fastest", "their time / ours", "first answer", "relative error"):
        table.add_column(name, justify="left" if name == "engine" else "right")
    for r in rows:
        error = "" if r["engine"] == _OURS or r["relative_error"] is None else f"{r['relative_error']:.1e}"
        table.add_row(
            r["engine"], _time(r["median_seconds"]), _time(r["min_seconds"]), f"{r['ratio']:.2f}",
            _time(r["first_answer_seconds"]), error,
        )  # fmt: skip
    console = Console(width=100)
    with console.capture() as got:
        console.print(table)
    return "\n".join(line.rstrip() for line in got.get().strip().splitlines())


def _time(seconds: float) -> str:
    for limit, scale, unit in ((1e-3, 1e6, "µs"), (1.0, 1e3, "ms")):
        if seconds < limit:
            return (
                f"{seconds * scale:.3g} {unit}" if seconds * scale < 100 else f"{seconds * scale:.0f} {unit}"
            )
    return f"{seconds:.2f} s"


# ---------------------------------------------------------------------------- check
def check_command(desk: Desk, given: Check) -> None:
    """Compare the results of a model with another engine's, and find the first node that differs."""
    (other,) = _named(given.against) or ["onnxruntime"]
    _refuse_other_models(given.model)
    inputs = given_inputs(given.model, given.inputs, given.shapes, given.fill_mode)
    options = {"threads": 0, "target": given.target or None, "fixed": not given.dynamic}
    rows = _differences(given.model, inputs, options, other, desk)
    wrong = [r for r in rows if not r["relative"] <= given.tolerance]
    since = None
    if wrong or given.nodes:
        desk.note("comparing every node")
        since, nodes = _first_node(given.model, inputs, options, other, given.tolerance, desk)
    data = {
        "model": str(given.model),
        "against": other,
        "tolerance": given.tolerance,
        "outputs": rows,
        "first": since,
    }
    lines = [
        f"{r['output']}: largest error {r['error']:.3g} at {r['at']}, {r['relative']:.1e} of the largest value"
        + ("" if r["relative"] <= given.tolerance else "   differs")
        for r in rows
    ]
    if since is not None:
        lines.append(
            f"the first node that differs: {since['node']} ({since['op']}), result {since['output']!r}"
        )
    elif wrong:
        lines.append("no single node differs: errors add up over the network")
    if given.nodes:
        data["nodes"] = nodes
        lines += [f"  {n['relative']:.1e}  {n['op']:18} {n['node']}" for n in nodes]
    desk.result(data, "\n".join(lines))
    if wrong:
        raise TVMCException(
            f"{given.model}: {len(wrong)} of {len(rows)} results differ from {other}'s by more than {given.tolerance:g}"
        )


def _differences(
    path: Path, inputs: Arrays, options: Mapping[str, Any], other: str, desk: Desk
) -> list[dict[str, Any]]:
    found = []
    for name in (_OURS, other):
        desk.note(f"{name}: running {path.name}")
        with closing(Engine(name, path, inputs, options)) as engine:
            found.append(engine.results)
    mine, theirs = found
    return [{"output": n, **compared(mine[n], v)} for n, v in theirs.items() if n in mine]


def _first_node(
    path: Path, inputs: Arrays, options: Mapping[str, Any], other: str, tolerance: float, desk: Desk
) -> tuple[dict[str, Any] | None, list[dict[str, Any]]]:
    """The first node in order whose result differs, with all results of the network exposed; and all nodes."""
    import tempfile

    import onnx

    model = onnx.load(str(path))
    shown = {o.name for o in model.graph.output}
    order = [(node, name) for node in model.graph.node for name in node.output if name]
    for _, name in order:
        if name not in shown:
            model.graph.output.append(onnx.ValueInfoProto(name=name))
    with tempfile.TemporaryDirectory(prefix="tilewright-check-") as folder:
        file = Path(folder) / path.name
        onnx.save(model, str(file))
        rows = {r["output"]: r for r in _differences(file, inputs, options, other, desk)}
    nodes = [
        {"node": node.name or node.op_type, "op": node.op_type, **rows[name]}
        for node, name in order
        if name in rows
    ]
    return next((n for n in nodes if not n["relative"] <= tolerance), None), nodes
