"""The command line: `tilewright compile`, `tilewright run`, `tilewright show`.

Only names and options are here, so that `tilewright --help` answers at once; the work is in driver/tvmc.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from .driver.tvmc.command_line import Desk

__all__ = ["app", "main"]

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Compile models of ONNX, PyTorch and Keras to machine code, and run them. "
    "Results go to stdout, progress and errors to stderr. "
    "Exit codes: 0 done, 1 refused or failed, 2 wrong usage, 70 a fault in tilewright, 130 interrupted.",
)

Model = Annotated[
    Path,
    typer.Argument(
        help="The model: .onnx, .pt (traced), .pt2 (torch.export), .keras, .h5, .pb, a SavedModel, .tar (saved)."
    ),
]
Target = Annotated[str, typer.Option(help='What to compile for, such as "llvm -mcpu=znver4".')]
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
        help="onnx, pytorch, pytorch-exported, keras, tensorflow or saved; else by the file's name.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print the result, or the error, as JSON.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress on stderr.")]


def _desk(as_json: bool, quiet: bool) -> Desk:
    from .driver.tvmc.command_line import Desk

    return Desk(as_json, quiet)


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


@app.command("compile")
def compile_(
    model: Model,
    target: Target = "llvm",
    output: Annotated[Path, typer.Option("--output", "-o", help="The package to write.")] = Path(
        "module.tar"
    ),
    shapes: Shapes = "",
    model_format: Format = "",
    opt_level: Annotated[
        int, typer.Option("--opt-level", "-O", min=0, max=4, help="How much to optimise.")
    ] = 3,
    disabled_pass: Annotated[
        str, typer.Option("--disabled-pass", help="Passes to leave out, with commas between.")
    ] = "",
    output_format: Annotated[
        str, typer.Option("--output-format", "-f", help="so: a library; tar: object files.")
    ] = "so",
    desired_layout: Annotated[
        str, typer.Option("--desired-layout", help="Compute convolutions in NCHW or NHWC.")
    ] = "",
    use_vm: Annotated[
        bool, typer.Option("--use-vm", help="Compile for the virtual machine, also where there is no need.")
    ] = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Compile a model to a package that `tilewright run` runs."""
    desk = _desk(as_json, quiet)
    with desk.working():
        from .driver.tvmc.command_line import compile_command

        disabled = [name.strip() for name in disabled_pass.split(",") if name.strip()]
        compile_command(
            desk,
            model,
            target,
            output,
            shapes,
            model_format,
            opt_level,
            disabled,
            output_format,
            desired_layout,
            use_vm,
        )


@app.command()
def run(
    package: Annotated[Path, typer.Argument(help="The package that `tilewright compile` wrote.")],
    inputs: Annotated[
        Path | None, typer.Option("--inputs", "-i", help="An .npz file with the inputs by name.")
    ] = None,
    outputs: Annotated[
        Path | None, typer.Option("--outputs", "--output", "-o", help="An .npz file for the results.")
    ] = None,
    device: Annotated[str, typer.Option(help="Where to run.")] = "cpu",
    fill_mode: Annotated[
        str, typer.Option("--fill-mode", help="What inputs get that are not given: random, zeros, ones.")
    ] = "random",
    print_time: Annotated[bool, typer.Option("--print-time", help="Measure, and print the times.")] = False,
    profile: Annotated[bool, typer.Option("--profile", help="Print the time of every kernel.")] = False,
    repeat: Annotated[int, typer.Option("--repeat", min=1, help="How many times to measure.")] = 10,
    number: Annotated[int, typer.Option("--number", min=1, help="Runs in one measurement.")] = 10,
    print_top: Annotated[int, typer.Option("--print-top", min=0, help="Print the greatest values.")] = 0,
    threads: Annotated[int, typer.Option("--threads", min=0, help="Threads to run on; 0: all cores.")] = 0,
    shapes: Annotated[
        str, typer.Option("--shapes", "--input-shapes", help="Sizes of inputs that are filled and open.")
    ] = "",
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Run a package."""
    desk = _desk(as_json, quiet)
    with desk.working():
        from .driver.tvmc.command_line import run_command

        run_command(
            desk,
            package,
            device,
            inputs,
            outputs,
            fill_mode,
            print_time,
            profile,
            repeat,
            number,
            print_top,
            threads,
            shapes,
        )


@app.command()
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
    """Say what is in a model (operators, shapes, FLOPs, the kernels after fusion) or in a package."""
    desk = _desk(as_json, quiet)
    with desk.working():
        from .driver.tvmc.command_line import show_command

        show_command(desk, model, target, shapes, model_format, every, text, fuse)


def main() -> None:
    """The entry point."""
    app(prog_name="tilewright")


if __name__ == "__main__":
    main()
