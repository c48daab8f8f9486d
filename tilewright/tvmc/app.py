"""The command line: `tilewright compile`, `run`, `show`, `tune`, `db`, `replay`, `calibrate`.

Only names and options are here, so that `tilewright --help` answers at once; the work is in the files beside this one.
"""

from __future__ import annotations

import inspect
import math
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import MISSING, dataclass, field, fields
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_type_hints

import typer

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Compile models of ONNX, PyTorch and Keras to machine code, tune them, and run them. "
    "Results go to stdout, progress and errors to stderr. "
    "Exit codes: 0 success, 1 refused or failed, 2 wrong usage, 70 a bug in tilewright, 130 interrupted, "
    "143 ended by SIGTERM.",
)


# -- options ------------------------------------------------------------------------------------------
def _option(default: Any, *flags: str, **settings: Any) -> Any:
    """A field of a command's settings that is given by an option."""
    return field(default=default, metadata={"typer": typer.Option(*flags, **settings)})


def _argument(default: Any = MISSING, **settings: Any) -> Any:
    """A field of a command's settings that is given by position; required if it has no default."""
    return field(default=default, metadata={"typer": typer.Argument(**settings)})


def _model() -> Any:
    kinds = ".onnx, .pt (traced), .pt2 (torch.export), .keras, .h5, .pb, a SavedModel, .tar (saved), .relay (text)"
    return _argument(help=f"The model: {kinds}.")


def _target() -> Any:
    return _option("llvm", help='The target, such as "llvm -mcpu=znver4".')


def _shapes() -> Any:
    form = '"data:[1,3,224,224] ids:int64[1,128]"'
    return _option("", "--shapes", "--input-shapes", help=f"Sizes of inputs: {form}.")


def _inputs() -> Any:
    return _option(None, "--inputs", "-i", help="An .npz file with the inputs by name.")


def _fill() -> Any:
    return _option("random", "--fill-mode", help="The values of missing inputs: random, zeros, ones.")


def _figure(flag: str, what: str) -> Any:
    return _option(0, flag, min=0, help=f"A figure of the target: {what}; 0: as the target says.")


def _format() -> Any:
    kinds = "onnx, pytorch, pytorch-exported, keras, tensorflow, saved or relay"
    return _option("", "--model-format", help=f"{kinds}; by default from the file's name.")


@dataclass(frozen=True, kw_only=True)
class _Printed:
    """The option of a command that prints a result."""

    as_json: bool = _option(False, "--json", help="Print the result, or the error, as JSON.")


@dataclass(frozen=True, kw_only=True)
class _Worked(_Printed):
    """The options of a command that prints progress too."""

    quiet: bool = _option(False, "--quiet", "-q", help="No progress on stderr.")


@dataclass(frozen=True, kw_only=True)
class _Graph:
    """The options that change the graph before it is tuned or compiled."""

    desired_layout: str = _option(
        "",
        "--desired-layout",
        help="Compute convolutions in this layout: NCHW, NHWC, or NHWC:HWIO with kernels.",
    )
    desired_layout_ops: str = _option(
        "", "--desired-layout-ops", help="The operators with that layout; or with one layout each."
    )
    mixed_precision: bool = _option(
        False, "--mixed-precision", help="Compute products and convolutions in a smaller float type."
    )
    mixed_precision_ops: str = _option(
        "", "--mixed-precision-ops", help="The operators with a smaller type; by default nn.conv2d,nn.dense."
    )
    mixed_precision_calculation_type: str = _option(
        "", "--mixed-precision-calculation-type", help="The smaller type: float16 (the default) or bfloat16."
    )
    mixed_precision_acc_type: str = _option(
        "", "--mixed-precision-acc-type", help="The type of their sums: float16 (the default) or float32."
    )

    def transforms(self) -> dict[str, Any]:
        """The options as `tvmc.transform.apply_graph_transforms` takes them."""
        return {
            "desired_layout": words(self.desired_layout),
            "desired_layout_ops": words(self.desired_layout_ops),
            "mixed_precision": self.mixed_precision,
            "mixed_precision_ops": words(self.mixed_precision_ops),
            "mixed_precision_calculation_type": self.mixed_precision_calculation_type or None,
            "mixed_precision_acc_type": self.mixed_precision_acc_type or None,
        }


def words(text: str) -> list[str] | None:
    """The words of a text, separated by commas; None if there are none."""
    return [w.strip() for w in text.split(",") if w.strip()] or None


_Settings = TypeVar("_Settings", bound=_Printed)


def _command(group: typer.Typer, name: str, work: str) -> Callable[[type[_Settings]], type[_Settings]]:
    """A command whose options are the fields of the decorated class, and whose help is its docstring.

    `work` is `module.function` in this package: it is called with the desk to write to and the settings, an object of
    the class. Fields that begin with `_` are options of classic command lines that change nothing.
    """

    def declare(cls: type[_Settings]) -> type[_Settings]:
        settings = dataclass(frozen=True)(cls)

        def run(**given: Any) -> None:
            from .command_line import Desk

            options = settings(**given)
            desk = Desk(options.as_json, getattr(options, "quiet", False))
            with desk.working():
                module, _, function = work.partition(".")
                getattr(import_module(f".{module}", __package__), function)(desk, options)

        types = get_type_hints(settings)
        parameters = [
            inspect.Parameter(
                f.name,
                inspect.Parameter.KEYWORD_ONLY,
                default=inspect.Parameter.empty if f.default is MISSING else f.default,
                annotation=Annotated[types[f.name], f.metadata["typer"]],
            )
            for f in sorted(fields(settings), key=lambda f: bool(f.kw_only))
        ]
        run.__doc__ = settings.__doc__
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {p.name: p.annotation for p in parameters}
        first = re.split(r"(?<=[.])\s", inspect.cleandoc(settings.__doc__ or ""), maxsplit=1)[0]
        group.command(name, short_help=" ".join(first.split()))(run)
        return settings

    return declare


def _version(wanted: bool) -> None:
    if wanted:
        from ..version import VERSION

        typer.echo(VERSION)
        raise typer.Exit


@app.callback()
def about(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


@_command(app, "compile", "command_line.compile_command")
class Compile(_Graph, _Worked):
    """Compile a model to a package that `tilewright run` runs.

    \b
    tilewright compile net.onnx --target llvm -o net.tar
    tilewright compile net.onnx --tuning-records tune.db -o net.tar
    """

    model: Path = _model()
    target: str = _target()
    output: Path = _option(Path("module.tar"), "--output", "-o", help="The package to write.")
    shapes: str = _shapes()
    model_format: str = _format()
    opt_level: int = _option(3, "--opt-level", "-O", min=0, max=4, help="The optimisation level, 0 to 4.")
    disabled: str = _option("", "--disabled-pass", help="Passes to disable, separated by commas.")
    output_format: str = _option(
        "",
        "--output-format",
        "-f",
        help="so: a library (the default); tar: object files (without a C compiler).",
    )
    use_vm: bool = _option(
        False, "--use-vm", help="Compile for the virtual machine, even if the model does not need it."
    )
    tuning_records: list[Path] | None = _option(
        None,
        "--tuning-records",
        help="Records of `tilewright tune`: a database or lines of JSON; may be repeated.",
    )
    records_machine: str = _option(
        "", "--records-machine", help="Apply the records of another machine (its id, or any)."
    )
    cross: str = _option(
        "",
        "--cross-compiler",
        help="The compiler that links for another machine, such as aarch64-linux-gnu-gcc.",
    )
    cross_options: str = _option(
        "", "--cross-compiler-options", help="Further options of the cross compiler."
    )
    pass_config: list[str] | None = _option(
        None,
        "--pass-config",
        help="An option of a pass, such as tir.disable_vectorize=true; may be repeated.",
    )
    dump_code: str = _option(
        "", "--dump-code", help="Code to write beside the package: relay,tir,ll,asm,h,cu,cl,ptx."
    )
    dump_offloads: str = _option(
        "", "--dump-offloads", help="A file (-: stderr) for the list of operators by code generator."
    )
    host: str = _option("", "--host", "--target-host", help="The target of the host, for a GPU.")
    module_name: str = _option("default", "--module-name", help="The name of the model in the library.")
    instrument: list[str] | None = _option(
        None, "--instrument", help="A class with methods of PassInstrument: module.Class; may be repeated."
    )
    print_pass_times: bool = _option(False, "--print-pass-times", help="Print the time of each pass.")
    print_ir_before: str = _option("", "--print-ir-before", help="Passes before which to print the program.")
    print_ir_after: str = _option("", "--print-ir-after", help="Passes after which to print the program.")
    executor: str = _option("", "--executor", help="The executor: graph, aot or vm.", hidden=True)
    link_params: bool = _option(
        False,
        "--executor-graph-link-params/--no-executor-graph-link-params",
        "--executor-aot-link-params/--no-executor-aot-link-params",
        help="Put the weights into the library.",
    )
    _runtime: str = _option("", "--runtime", hidden=True)
    _verbose: int = _option(0, "--verbose", "-v", count=True, hidden=True)


@_command(app, "run", "command_line.run_command")
class Run(_Worked):
    """Run a package, or a model, which is compiled first."""

    package: Path = _argument(help="The package that `tilewright compile` wrote, or a model: net.onnx.")
    inputs: Path | None = _inputs()
    outputs: Path | None = _option(None, "--outputs", "--output", "-o", help="An .npz file for the results.")
    device: str = _option("cpu", help="The device to run on.")
    fill_mode: str = _fill()
    print_time: bool = _option(False, "--print-time", "--benchmark", help="Measure, and print the times.")
    end_to_end: bool = _option(
        False, "--end-to-end", help="Include the copies of inputs and results in the times."
    )
    profile: bool = _option(
        False, "--profile", help="Print the time, GFLOP/s, GB/s and source node of every kernel."
    )
    profile_output: Path | None = _option(
        None,
        "--profile-output",
        help="A file for the profile: *.csv, *.json, or *.trace.json for ui.perfetto.dev.",
    )
    repeat: int = _option(10, "--repeat", min=1, help="The number of measurements.")
    number: int = _option(10, "--number", min=1, help="Runs in one measurement.")
    top: int = _option(0, "--print-top", min=0, help="Print the greatest values.")
    threads: int = _option(0, "--threads", min=0, help="Threads to run on; 0: all cores.")
    shapes: str = _option(
        "", "--shapes", "--input-shapes", help="Sizes of missing inputs with dynamic shapes."
    )
    tracker: str = _option(
        "", "--rpc-tracker", help="HOST:PORT of an RPC server; with --rpc-key, of a tracker."
    )
    key: str = _option("", "--rpc-key", help="The key of the servers to request from the tracker.")
    project_dir: str = _option("", "--project-dir", hidden=True)


@dataclass(frozen=True)
class _Compared(_Worked):
    """The options of a command that runs an ONNX model here and by another engine."""

    model: Path = _model()  # noqa: RUF009  # it returns a field
    against: str = _option("onnxruntime", "--against", help="The other engine: onnxruntime or openvino.")
    inputs: Path | None = _inputs()  # noqa: RUF009
    shapes: str = _shapes()
    fill_mode: str = _fill()
    dynamic: bool = _option(False, "--dynamic", help="Compile for the dynamic sizes of the file.")
    target: str = _option("", "--target", help="The target, this machine's CPU by default.")


@_command(app, "bench", "compare.bench_command")
class Bench(_Compared):
    """Time an ONNX model beside other engines, each in a process of its own, in turns."""

    against: str = _option(
        "",
        "--against",
        help="The other engines: onnxruntime, openvino; by default onnxruntime, if it is installed.",
    )
    threads: int = _option(0, "--threads", min=0, help="Threads of each engine; 0: all cores.")
    repeat: int = _option(11, "--repeat", min=1, help="Turns; the median counts.")


@_command(app, "check", "compare.check_command")
class Check(_Compared):
    """Compare the results of an ONNX model with another engine's: largest errors, and the first node that differs."""

    tolerance: float = _option(1e-3, "--tolerance", help="The largest error, relative to the largest value.")
    nodes: bool = _option(False, "--nodes", help="Compare the result of every node.")


@_command(app, "quantize", "quantize.quantize_command")
class Quantize(_Worked):
    """Quantize an ONNX model to 8-bit integers, or only its weights, and report the noise of layers and results.

    \b
    tilewright quantize net.onnx --data samples.npz -o net.int8.onnx
    tilewright quantize net.onnx --data samples/ --calibration entropy --skip Conv_0,Softmax
    tilewright quantize bert.onnx --calibration dynamic
    tilewright quantize llm.onnx --weights-only 4
    tilewright bench net.int8.onnx --against onnxruntime
    """

    model: Path = _argument(help="The model: .onnx.")
    data: Path | None = _option(
        None,
        "--data",
        "-d",
        help="Samples of the inputs by name: an .npz file whose arrays have one more dimension before the others, or a "
        "folder of .npz files with a sample each.",
    )
    random: int = _option(0, "--random", min=0, help="So many random samples instead: to measure speed only.")
    shapes: str = _shapes()
    output: Path | None = _option(
        None, "--output", "-o", help="The file to write; by default MODEL.int8.onnx or MODEL.w4.onnx."
    )
    calibration: str = _option(
        "percentile", "--calibration", "-c", help="How ranges are chosen: percentile, max, entropy, dynamic."
    )
    activations: str = _option("uint8", "--activations", help="uint8, or int8 (symmetric).")
    per_channel: bool = _option(
        True, "--per-channel/--per-tensor", help="A scale of weights for each output channel."
    )
    skip: str = _option("", "--skip", help="Nodes or operators that stay float, separated by commas.")
    weights_only: int = _option(
        0,
        "--weights-only",
        help="4 or 8: only weights of products are quantized, to so many bits; needs no data.",
    )
    block: int = _option(32, "--block", help="With --weights-only: so many weights share a scale.")
    data_bits: int = _option(
        0,
        "--data-bits",
        help="With --weights-only: 8 allows to round the data of products to 8 bits as well.",
    )
    compare: bool = _option(True, "--compare/--no-compare", help="Report the noise of each layer.")


@_command(app, "show", "command_line.show_command")
class Show(_Worked):
    """Show the contents of a model (operators, shapes, FLOPs, the kernels after fusion) or of a package."""

    model: Path = _model()
    target: str = _target()
    shapes: str = _shapes()
    model_format: str = _format()
    every: bool = _option(False, "--all", "-a", help="A row for each operator, in order, with its node.")
    node: str = _option(
        "",
        "--node",
        help="Only the operators and kernels of nodes with this in their names (or of operators).",
    )
    text: bool = _option(False, "--text", help="Print the program as text.")
    fuse: bool = _option(True, "--fuse/--no-fuse", help="Show the kernels after fusion.")


@_command(app, "tune", "tune_commands.tune_command")
class Tune(_Graph, _Worked):
    """Measure candidates for the kernels of a model, and store the records for `tilewright compile --tuning-records`.

    An interrupted or killed search loses nothing: --resume continues it. The chosen schedules are never slower
    than the schedules without tuning.

    \b
    tilewright tune net.onnx --target llvm --trials 500 --db tune.db
    tilewright tune net.onnx --db tune.db --trials 2000 --resume
    tilewright tune net.onnx --time-limit 600
    tilewright tune net.onnx --tasks list
    tilewright tune net.onnx --tasks conv2d --model model.json
    tilewright tune --model model.json --db tune.db          trains that cost model on the records in tune.db
    """

    model: Path | None = _argument(
        default=None,
        help="The model to tune. Without a model, --model FILE is the cost model to train from --db.",
    )
    target: str = _target()
    trials: int = _option(1000, "--trials", "-n", min=1, help="Candidates to measure, over all tasks.")
    database: Path = _option(
        Path("tune.db"),
        "--db",
        "--output",
        "-o",
        help="The file for the records: a database (.db), or lines of JSON (.json).",
    )
    resume: bool = _option(
        False, "--resume", help="Continue a search: the records in the database count as part of the trials."
    )
    prior: list[Path] | None = _option(
        None, "--prior-records", "--tuning-records", help="Records to start from; may be repeated."
    )
    seed: int = _option(0, "--seed", min=0, help="The seed of the random choices.")
    cost_model: str = _option(
        "auto", "--model", help="The cost model: auto, trees, analytical, random, or a file."
    )
    timeout: float = _option(
        10.0,
        "--timeout-per-trial",
        "--timeout",
        min=0.1,
        help="Time limit for the run of a candidate, in seconds.",
    )
    tasks: str = _option(
        "all",
        "--tasks",
        help='The tasks to tune: all, list (prints them), numbers "0,3-5", or (parts of) names of tasks, nodes of the '
        "model, or steps of a profile.",
    )
    limit: float = _option(
        math.inf, "--time-limit", min=1, help="Approximate time limit for the whole search, in seconds."
    )
    min_gain: float = _option(
        0.01,
        "--min-gain",
        min=0,
        max=1,
        help="Stop a task when a round is expected to save less than this fraction of its time.",
    )
    cluster: str = _option("", "--cluster", help="Measure on the workers of a Dask cluster: tcp://host:8786.")
    shapes: str = _shapes()
    model_format: str = _format()
    opt_level: int = _option(
        3, "--opt-level", "-O", min=0, max=4, help="The optimisation level of the later compilation."
    )
    early_stopping: int = _option(
        0, "--early-stopping", min=0, help="Stop a task after this many trials without an improvement."
    )
    parallel: int = _option(0, "--parallel", min=0, help="Number of build processes; 0: all cores.")
    repeat: int = _option(
        0, "--repeat", min=0, help="Samples of each candidate; 0: as many as the noise requires."
    )
    min_repeat_ms: int = _option(
        0, "--min-repeat-ms", min=0, help="Minimum duration of a sample, in milliseconds."
    )
    num_cores: int = _figure("--num-cores", "cores")
    cache_line_bytes: int = _figure("--cache-line-bytes", "bytes of a cache line")
    vector_unit_bytes: int = _figure("--vector-unit-bytes", "bytes of a vector")
    max_shared_memory_per_block: int = _figure("--max-shared-memory-per-block", "bytes")
    max_local_memory_per_block: int = _figure("--max-local-memory-per-block", "bytes")
    max_threads_per_block: int = _figure("--max-threads-per-block", "threads")
    max_vthread_extent: int = _figure("--max-vthread-extent", "virtual threads")
    warp_size: int = _figure("--warp-size", "threads of a warp")
    tracker: str = _option(
        "", "--rpc-tracker", help="Measure on the servers of an RPC tracker: HOST:PORT, with --rpc-key."
    )
    key: str = _option("", "--rpc-key", help="The key of the servers that measure.")
    tuner: str = _option("", "--tuner", help="The classic name of a cost model: xgb, ga, random, gridsearch.")
    _number: int = _option(0, "--number", hidden=True)
    include_simple_tasks: bool = _option(
        True,
        "--include-simple-tasks/--no-include-simple-tasks",
        help="Tune kernels without products and convolutions too.",
    )
    log_estimated_latency: bool = _option(
        False, "--log-estimated-latency", help="Print the estimated time of the model."
    )
    _autoscheduler: bool = _option(False, "--enable-autoscheduler", hidden=True)
    _verbose: int = _option(0, "--verbose", "-v", count=True, hidden=True)

    def hardware(self) -> dict[str, int]:
        """The figures of the hardware that are given, by their classic names."""
        names = (
            "num_cores", "cache_line_bytes", "vector_unit_bytes", "max_shared_memory_per_block",
            "max_local_memory_per_block", "max_threads_per_block", "max_vthread_extent", "warp_size",
        )  # fmt: skip
        return {name: getattr(self, name) for name in names if getattr(self, name)}


# -- records ------------------------------------------------------------------------------------------
records = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Show, merge and convert tuning records, and train cost models on them.",
)
app.add_typer(records, name="db", short_help=records.info.help)


def _records() -> Any:
    return _argument(metavar="FILE", help="A database, or records as lines of JSON.")


def _task() -> Any:
    return _option(
        "", "--task", "-t", help="A task: its name, a node of its model, or the beginning of its key."
    )


@_command(records, "show", "db_commands.show_command")
class DbShow(_Printed):
    """List the tasks of a file of records, or the records of one task.

    \b
    tilewright db show tune.db
    tilewright db show tune.db --task fused_nn_conv2d_nn_relu
    """

    path: Path = _records()
    task: str = _task()
    limit: int = _option(20, "--limit", min=0, help="Records to show of a task; 0: all.")


@_command(records, "best", "db_commands.best_command")
class DbBest(_Printed):
    """Show the record of each task that a build applies."""

    path: Path = _records()
    task: str = _task()
    every_machine: bool = _option(False, "--all", "-a", help="Include records of other machines.")


@_command(records, "merge", "db_commands.merge_command")
class DbMerge(_Printed):
    """Merge the records of other files into a database. Existing records are not duplicated.

    \b
    tilewright db merge all.db monday.db tuesday.db
    """

    into: Path = _argument(metavar="INTO", help="The database to merge into; created if it does not exist.")
    sources: list[Path] = _argument(metavar="FROM...", help="Databases, or lines of JSON.")


@_command(records, "prune", "db_commands.prune_command")
class DbPrune(_Printed):
    """Keep only the fastest records of each task, and its winner."""

    path: Path = _argument(metavar="DB", help="The database.")
    keep: int = _option(16, "--keep", min=1, help="Records of each task to keep.")
    keep_failed: bool = _option(False, "--keep-failed", help="Keep failed records too.")


@_command(records, "export", "db_commands.export_command")
class DbExport(_Printed):
    """Write all records as lines of JSON, which `tilewright db import` and `compile --tuning-records` read."""

    path: Path = _argument(metavar="DB", help="The database.")
    output: Path = _argument(metavar="FILE", help="The file to write.")


@_command(records, "import", "db_commands.import_command")
class DbImport(_Printed):
    """Import records that `tilewright db export`, or auto_scheduler's RecordToFile, wrote."""

    into: Path = _argument(metavar="DB", help="The database to merge into; created if it does not exist.")
    source: Path = _argument(metavar="FILE", help="Lines of JSON.")


@_command(records, "train", "tune_commands.train_command")
class DbTrain(_Printed):
    """Train a cost model on the measurements of this machine, for `tilewright tune --model`.

    \b
    tilewright db train tune.db -o model.json
    tilewright tune other.onnx --model model.json
    """

    path: Path = _records()
    output: Path = _option(Path("model.json"), "--output", "-o", help="The cost model to write.")


@_command(app, "replay", "db_commands.replay_command")
class Replay(_Worked):
    """Rebuild a record: show its schedule and code, check its result, and compare its time with the recorded time.

    \b
    tilewright replay 076a05675a57 --db tune.db
    tilewright replay fused_nn_conv2d_nn_relu --db tune.db --no-script
    """

    wanted: str = _argument(
        metavar="RECORD",
        help="The beginning of a record's id; a task, by its name or key or a node of the model (its best record); or "
        "the record as a line of JSON (-: stdin).",
    )
    path: Path = _option(Path("tune.db"), "--db", help="The file that contains the record and its program.")
    timeout: float = _option(10.0, "--timeout", min=0.1, help="Time limit for the run, in seconds.")
    script: bool = _option(True, "--script/--no-script", help="Print the scheduled program.")


@_command(app, "calibrate", "calibrate.calibrate_command")
class Calibrate(_Worked):
    """Measure this machine, so that schedules are chosen for it and not for the nearest known machine.

    \b
    tilewright calibrate                     the processor in a minute, and a CUDA device in two
    tilewright calibrate --show              the figures, and the files that they are in
    tilewright calibrate --remove            back to the table of known machines
    """

    device: str = _option("all", "--device", help="What to measure: all, cpu or cuda.")
    rounds: int = _option(25, "--rounds", min=1, help="Attempts for each figure; the best one counts.")
    show: bool = _option(False, "--show", help="Print the stored figures.")
    remove: bool = _option(False, "--remove", help="Remove the stored figures.")


@_command(app, "doctor", "doctor.doctor_command")
class Doctor(_Printed):
    """Say what this installation has (CPU and threads, LLVM, C compiler, GPUs, caches), test it, and say how to get
    what is missing. The exit code is 1 if a test fails.

    \b
    tilewright doctor
    tilewright doctor --json > doctor.json      for a report of a bug
    """

    skip_test: bool = _option(False, "--skip-test", help="Only the facts: compile and run nothing.")


def with_target_options(given: Sequence[str]) -> list[str]:
    """Arguments with the classic options of targets in the target itself.

    --target=llvm --target-llvm-mcpu=znver4    ->    --target "llvm -mcpu=znver4"
    """
    kept: list[str] = []
    options: dict[str, list[str]] = {}
    words = iter(given)
    for word in words:
        name, sign, value = word.partition("=")
        if found := re.fullmatch(r"--target-([a-z]+)-([\w-]+)", name):
            options.setdefault(found[1], []).append(f"-{found[2]}={value if sign else next(words, '')}")
        else:
            kept.append(word)
    if not options:
        return kept
    at = next((i for i, w in enumerate(kept) if w == "--target" or w.startswith("--target=")), None)
    if at is None:
        text, kept = "llvm", [*kept, "--target", "llvm"]
        at = len(kept) - 2
    else:
        text = kept[at].partition("=")[2] if "=" in kept[at] else kept[at + 1]
    targets = [
        " ".join([target, *options.get(target.split(" ")[0], ())])
        for target in re.split(r",\s+", text)
        if target
    ]
    end = at + 1 if "=" in kept[at] else at + 2
    return [*kept[:at], "--target", ", ".join(targets), *kept[end:]]


_SWITCHES = re.compile(r"--executor-(?:graph|aot)-link-params")
_LISTS = ("--desired-layout", "--desired-layout-ops", "--mixed-precision-ops")


def with_classic_forms(given: Sequence[str]) -> list[str]:
    """Arguments in the form of this parser: a list is one word, and a switch has no value.

    --desired-layout NHWC NCHW           ->    --desired-layout NHWC,NCHW
    --executor-graph-link-params=1       ->    --executor-graph-link-params
    """
    kept: list[str] = []
    rest = list(given)
    while rest:
        word = rest.pop(0)
        name, sign, value = word.partition("=")
        if name in _LISTS:
            values = [value] if sign else []
            while rest and not rest[0].startswith("-") and (not values or _is_item(name, rest[0])):
                values.append(rest.pop(0))
            kept += [name, ",".join(values)]
        elif _SWITCHES.fullmatch(name) and (sign or (rest and rest[0] in ("0", "1"))):
            on = (value if sign else rest.pop(0)).lower() in ("1", "true")
            kept.append(name if on else f"--no-{name[2:]}")
        else:
            kept.append(word)
    return kept


def _is_item(option: str, word: str) -> bool:
    """Whether a further word belongs to a list; it may be the model, which has a suffix."""
    layout, operator = r"[A-Z0-9a-z]+(:[A-Z0-9a-z]+)?", r"((nn|qnn|image|vision)\.)?\w+"
    return bool(re.fullmatch(layout if option == "--desired-layout" else operator, word))


def main(argv: Sequence[str] | None = None, name: str = "tilewright") -> None:
    """The entry point."""
    given = sys.argv[1:] if argv is None else argv
    app(args=with_classic_forms(with_target_options(given)), prog_name=name)
