"""The command line: `tilewright compile`, `run`, `show`, `tune`, `db`, `replay`, `calibrate`.

Only names and options are here, so that `tilewright --help` answers at once; the work is in the files beside this one.
"""

from __future__ import annotations

import functools
import math
import re
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Compile models of ONNX, PyTorch and Keras to machine code, tune them, and run them. "
    "Results go to stdout, progress and errors to stderr. "
    "Exit codes: 0 success, 1 refused or failed, 2 wrong usage, 70 a bug in tilewright, 130 interrupted, "
    "143 ended by SIGTERM.",
)

Model = Annotated[
    Path,
    typer.Argument(
        help="The model: .onnx, .pt (traced), .pt2 (torch.export), .keras, .h5, .pb, a SavedModel, .tar (saved)."
    ),
]
Target = Annotated[str, typer.Option(help='The target, such as "llvm -mcpu=znver4".')]
Shapes = Annotated[
    str,
    typer.Option(
        "--shapes", "--input-shapes", help='Sizes of inputs: "data:[1,3,224,224] ids:int64[1,128]".'
    ),
]
Format = Annotated[
    str,
    typer.Option(
        "--model-format",
        help="onnx, pytorch, pytorch-exported, keras, tensorflow or saved; by default from the file's name.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print the result, or the error, as JSON.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress on stderr.")]


def _command(
    group: typer.Typer, name: str, work: str
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """A command with the options of the decorated function, which has no body: `work`, a function of a module beside
    this one, is called with them and with the desk to write to. Options that begin with `_` only let classic command
    lines through."""

    def declare(options: Callable[..., None]) -> Callable[..., None]:
        @group.command(name)
        @functools.wraps(options)
        def run(as_json: bool = False, quiet: bool = False, **given: Any) -> None:
            from .command_line import Desk

            desk = Desk(as_json, quiet)
            with desk.working():
                module, _, function = work.partition(".")
                do = getattr(import_module(f".{module}", __package__), function)
                do(desk, **{option: value for option, value in given.items() if not option.startswith("_")})

        return run

    return declare


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"tilewright {version('tilewright')}")
        raise typer.Exit


@app.callback()
def about(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


@_command(app, "compile", "command_line.compile_command")
def compile_(
    model: Model,
    target: Target = "llvm",
    output: Annotated[Path, typer.Option("--output", "-o", help="The package to write.")] = Path(
        "module.tar"
    ),
    shapes: Shapes = "",
    model_format: Format = "",
    opt_level: Annotated[
        int, typer.Option("--opt-level", "-O", min=0, max=4, help="The optimisation level, 0 to 4.")
    ] = 3,
    disabled: Annotated[
        str, typer.Option("--disabled-pass", help="Passes to disable, separated by commas.")
    ] = "",
    output_format: Annotated[
        str, typer.Option("--output-format", "-f", help="so: a library; tar: object files.")
    ] = "so",
    desired_layout: Annotated[
        str, typer.Option("--desired-layout", help="Compute convolutions in NCHW or NHWC.")
    ] = "",
    use_vm: Annotated[
        bool,
        typer.Option("--use-vm", help="Compile for the virtual machine, even if the model does not need it."),
    ] = False,
    tuning_records: Annotated[
        list[Path] | None,
        typer.Option(
            "--tuning-records",
            help="Records of `tilewright tune`: a database or lines of JSON; may be repeated.",
        ),
    ] = None,
    records_machine: Annotated[
        str,
        typer.Option("--records-machine", help="Apply the records of another machine (its id, or any)."),
    ] = "",
    cross: Annotated[
        str,
        typer.Option(
            "--cross-compiler",
            help="The compiler that links for another machine, such as aarch64-linux-gnu-gcc.",
        ),
    ] = "",
    cross_options: Annotated[
        str, typer.Option("--cross-compiler-options", help="Further options of the cross compiler.")
    ] = "",
    pass_config: Annotated[
        list[str] | None,
        typer.Option(
            "--pass-config", help="An option of a pass, such as tir.disable_vectorize=true; may be repeated."
        ),
    ] = None,
    dump_code: Annotated[
        str,
        typer.Option("--dump-code", help="Code to write beside the package, for reading: relay,h,cu,cl,ptx."),
    ] = "",
    executor: Annotated[
        str, typer.Option("--executor", help="The executor: graph, aot or vm.", hidden=True)
    ] = "",
    _runtime: Annotated[str, typer.Option("--runtime", hidden=True)] = "",
    _verbose: Annotated[int, typer.Option("--verbose", "-v", count=True, hidden=True)] = 0,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Compile a model to a package that `tilewright run` runs.

    \b
    tilewright compile net.onnx --target llvm -o net.tar
    tilewright compile net.onnx --tuning-records tune.db -o net.tar
    """


@_command(app, "run", "command_line.run_command")
def run(
    package: Annotated[Path, typer.Argument(help="The package that `tilewright compile` wrote.")],
    inputs: Annotated[
        Path | None, typer.Option("--inputs", "-i", help="An .npz file with the inputs by name.")
    ] = None,
    outputs: Annotated[
        Path | None, typer.Option("--outputs", "--output", "-o", help="An .npz file for the results.")
    ] = None,
    device: Annotated[str, typer.Option(help="The device to run on.")] = "cpu",
    fill_mode: Annotated[
        str, typer.Option("--fill-mode", help="The values of missing inputs: random, zeros, ones.")
    ] = "random",
    print_time: Annotated[bool, typer.Option("--print-time", help="Measure, and print the times.")] = False,
    profile: Annotated[bool, typer.Option("--profile", help="Print the time of every kernel.")] = False,
    repeat: Annotated[int, typer.Option("--repeat", min=1, help="The number of measurements.")] = 10,
    number: Annotated[int, typer.Option("--number", min=1, help="Runs in one measurement.")] = 10,
    top: Annotated[int, typer.Option("--print-top", min=0, help="Print the greatest values.")] = 0,
    threads: Annotated[int, typer.Option("--threads", min=0, help="Threads to run on; 0: all cores.")] = 0,
    shapes: Annotated[
        str, typer.Option("--shapes", "--input-shapes", help="Sizes of missing inputs with dynamic shapes.")
    ] = "",
    tracker: Annotated[
        str,
        typer.Option("--rpc-tracker", help="HOST:PORT of an RPC server; with --rpc-key, of a tracker."),
    ] = "",
    key: Annotated[
        str, typer.Option("--rpc-key", help="The key of the servers to request from the tracker.")
    ] = "",
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Run a package."""


@_command(app, "show", "command_line.show_command")
def show(
    model: Model,
    target: Target = "llvm",
    shapes: Shapes = "",
    model_format: Format = "",
    every: Annotated[bool, typer.Option("--all", "-a", help="A row for each operator, in order.")] = False,
    text: Annotated[bool, typer.Option("--text", help="Print the program as text.")] = False,
    fuse: Annotated[bool, typer.Option("--fuse/--no-fuse", help="Show the kernels after fusion.")] = True,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Show the contents of a model (operators, shapes, FLOPs, the kernels after fusion) or of a package."""


# What `tune` is told.
ModelToTune = Annotated[
    Path | None,
    typer.Argument(
        help="The model to tune. Without a model, --model FILE is the cost model to train from --db."
    ),
]
Trials = Annotated[int, typer.Option("--trials", "-n", min=1, help="Candidates to measure, over all tasks.")]
Database = Annotated[
    Path,
    typer.Option(
        "--db",
        "--output",
        "-o",
        help="The file for the records: a database (.db), or lines of JSON (.json).",
    ),
]
Resume = Annotated[
    bool,
    typer.Option(
        "--resume", help="Continue a search: the records in the database count as part of the trials."
    ),
]
PriorRecords = Annotated[
    list[Path] | None,
    typer.Option("--prior-records", "--tuning-records", help="Records to start from; may be repeated."),
]
Seed = Annotated[int, typer.Option("--seed", min=0, help="The seed of the random choices.")]
CostModel = Annotated[
    str, typer.Option("--model", help="The cost model: auto, trees, analytical, random, or a file.")
]
Timeout = Annotated[
    float,
    typer.Option(
        "--timeout-per-trial", "--timeout", min=0.1, help="Time limit for the run of a candidate, in seconds."
    ),
]
Tasks = Annotated[
    str,
    typer.Option(
        "--tasks", help='The tasks to tune: all, list (prints them), numbers "0,3-5", or parts of names.'
    ),
]
TimeLimit = Annotated[
    float,
    typer.Option("--time-limit", min=1, help="Approximate time limit for the whole search, in seconds."),
]
MinGain = Annotated[
    float,
    typer.Option(
        "--min-gain",
        min=0,
        max=1,
        help="Stop a task when a round is expected to save less than this fraction of its time.",
    ),
]
Cluster = Annotated[
    str, typer.Option("--cluster", help="Measure on the workers of a Dask cluster: tcp://host:8786.")
]
TunedLevel = Annotated[
    int,
    typer.Option("--opt-level", "-O", min=0, max=4, help="The optimisation level of the later compilation."),
]
TunedLayout = Annotated[
    str, typer.Option("--desired-layout", help="The layout of the later compilation: NCHW or NHWC.")
]
EarlyStopping = Annotated[
    int,
    typer.Option(
        "--early-stopping", min=0, help="Stop a task after this many trials without an improvement."
    ),
]
Builders = Annotated[int, typer.Option("--parallel", min=0, help="Number of build processes; 0: all cores.")]
Samples = Annotated[
    int, typer.Option("--repeat", min=0, help="Samples of each candidate; 0: as many as the noise requires.")
]
MinRepeatMs = Annotated[
    int, typer.Option("--min-repeat-ms", min=0, help="Minimum duration of a sample, in milliseconds.")
]
Tuner = Annotated[
    str, typer.Option("--tuner", help="The classic name of a cost model: xgb, ga, random, gridsearch.")
]


@_command(app, "tune", "tune_commands.tune_command")
def tune(
    model: ModelToTune = None,
    target: Target = "llvm",
    trials: Trials = 1000,
    database: Database = Path("tune.db"),
    resume: Resume = False,
    prior: PriorRecords = None,
    seed: Seed = 0,
    cost_model: CostModel = "auto",
    timeout: Timeout = 10.0,
    tasks: Tasks = "all",
    limit: TimeLimit = math.inf,
    min_gain: MinGain = 0.01,
    cluster: Cluster = "",
    shapes: Shapes = "",
    model_format: Format = "",
    opt_level: TunedLevel = 3,
    desired_layout: TunedLayout = "",
    early_stopping: EarlyStopping = 0,
    parallel: Builders = 0,
    repeat: Samples = 0,
    min_repeat_ms: MinRepeatMs = 0,
    tuner: Tuner = "",
    _number: Annotated[int, typer.Option("--number", hidden=True)] = 0,
    _autoscheduler: Annotated[bool, typer.Option("--enable-autoscheduler", hidden=True)] = False,
    _verbose: Annotated[int, typer.Option("--verbose", "-v", count=True, hidden=True)] = 0,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
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


# -- records ------------------------------------------------------------------------------------------
records = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Show, merge and convert tuning records, and train cost models on them.",
)
app.add_typer(records, name="db")

Db = Annotated[Path, typer.Argument(metavar="DB", help="The database.")]
Records = Annotated[Path, typer.Argument(metavar="FILE", help="A database, or records as lines of JSON.")]
OfTask = Annotated[str, typer.Option("--task", "-t", help="The name of a task, or the beginning of its key.")]


@_command(records, "show", "db_commands.show_command")
def db_show(
    path: Records,
    task: OfTask = "",
    limit: Annotated[int, typer.Option("--limit", min=0, help="Records to show of a task; 0: all.")] = 20,
    as_json: Json = False,
) -> None:
    """List the tasks of a file of records, or the records of one task.

    \b
    tilewright db show tune.db
    tilewright db show tune.db --task fused_nn_conv2d_nn_relu
    """


@_command(records, "best", "db_commands.best_command")
def db_best(
    path: Records,
    task: OfTask = "",
    every_machine: Annotated[
        bool, typer.Option("--all", "-a", help="Include records of other machines.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Show the record of each task that a build applies."""


@_command(records, "merge", "db_commands.merge_command")
def db_merge(
    into: Annotated[
        Path, typer.Argument(metavar="INTO", help="The database to merge into; created if it does not exist.")
    ],
    sources: Annotated[list[Path], typer.Argument(metavar="FROM...", help="Databases, or lines of JSON.")],
    as_json: Json = False,
) -> None:
    """Merge the records of other files into a database. Existing records are not duplicated.

    \b
    tilewright db merge all.db monday.db tuesday.db
    """


@_command(records, "prune", "db_commands.prune_command")
def db_prune(
    path: Db,
    keep: Annotated[int, typer.Option("--keep", min=1, help="Records of each task to keep.")] = 16,
    keep_failed: Annotated[bool, typer.Option("--keep-failed", help="Keep failed records too.")] = False,
    as_json: Json = False,
) -> None:
    """Keep only the fastest records of each task, and its winner."""


@_command(records, "export", "db_commands.export_command")
def db_export(
    path: Db,
    output: Annotated[Path, typer.Argument(metavar="FILE", help="The file to write.")],
    as_json: Json = False,
) -> None:
    """Write all records as lines of JSON, which `tilewright db import` and `compile --tuning-records` read."""


@_command(records, "import", "db_commands.import_command")
def db_import(
    into: Annotated[
        Path, typer.Argument(metavar="DB", help="The database to merge into; created if it does not exist.")
    ],
    source: Annotated[Path, typer.Argument(metavar="FILE", help="Lines of JSON.")],
    as_json: Json = False,
) -> None:
    """Import records that `tilewright db export`, or auto_scheduler's RecordToFile, wrote."""


@_command(records, "train", "tune_commands.train_command")
def db_train(
    path: Records,
    output: Annotated[Path, typer.Option("--output", "-o", help="The cost model to write.")] = Path(
        "model.json"
    ),
    as_json: Json = False,
) -> None:
    """Train a cost model on the measurements of this machine, for `tilewright tune --model`.

    \b
    tilewright db train tune.db -o model.json
    tilewright tune other.onnx --model model.json
    """


@_command(app, "replay", "db_commands.replay_command")
def replay(
    wanted: Annotated[
        str,
        typer.Argument(
            metavar="RECORD",
            help="The beginning of a record's id, a task (its best), or the record as a line of JSON (-: stdin).",
        ),
    ],
    path: Annotated[
        Path, typer.Option("--db", help="The file that contains the record and its program.")
    ] = Path("tune.db"),
    timeout: Annotated[
        float, typer.Option("--timeout", min=0.1, help="Time limit for the run, in seconds.")
    ] = 10.0,
    script: Annotated[bool, typer.Option("--script/--no-script", help="Print the scheduled program.")] = True,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Rebuild a record: show its schedule and code, check its result, and compare its time with the recorded time.

    \b
    tilewright replay 076a05675a57 --db tune.db
    tilewright replay fused_nn_conv2d_nn_relu --db tune.db --no-script
    """


@_command(app, "calibrate", "calibrate.calibrate_command")
def calibrate(
    device: Annotated[str, typer.Option("--device", help="What to measure: all, cpu or cuda.")] = "all",
    rounds: Annotated[
        int, typer.Option("--rounds", min=1, help="Attempts for each figure; the best one counts.")
    ] = 25,
    show: Annotated[bool, typer.Option("--show", help="Print the stored figures.")] = False,
    remove: Annotated[bool, typer.Option("--remove", help="Remove the stored figures.")] = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Measure this machine, so that schedules are chosen for it and not for the nearest known machine.

    \b
    tilewright calibrate                     the processor in a minute, and a CUDA device in two
    tilewright calibrate --show              the figures, and the files that they are in
    tilewright calibrate --remove            back to the table of known machines
    """


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


def main(argv: Sequence[str] | None = None, name: str = "tilewright") -> None:
    """The entry point."""
    app(args=with_target_options(sys.argv[1:] if argv is None else argv), prog_name=name)
