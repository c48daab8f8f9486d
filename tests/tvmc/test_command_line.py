"""The command line: what goes to stdout and stderr, JSON, and exit codes."""

from __future__ import annotations

import importlib
import inspect
import io
import json
import os
import stat
import subprocess
import sys
import tarfile
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx")

from tilewright.driver.tvmc import command_line
from tvmc_models import SHAPE, expected, image, write_small
from typer.testing import CliRunner

from tilewright.__main__ import app


def call(*arguments: Any) -> Any:
    """Run a command in this process."""
    return CliRunner().invoke(app, [str(a) for a in arguments])


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_small(tmp_path_factory.mktemp("command") / "small.onnx")


@pytest.fixture(scope="module")
def package(model: Path) -> Path:
    made = model.with_name("net.tar")
    result = call("compile", model, "--target", "llvm", "-o", made, "--json")
    assert result.exit_code == 0, result.output
    told = json.loads(result.stdout)
    assert told["package"] == str(made)
    assert told["bytes"] == made.stat().st_size
    assert told["inputs"] == [{"name": "data", "dtype": "float32", "shape": list(SHAPE)}]
    assert told["memory"]["peak"] > 0
    assert result.stderr == f"importing {model}\ncompiling small for llvm\n"
    return made


@pytest.mark.slow
def test_a_package_runs(model: Path, package: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "in.npz", data=image())
    result = call(
        "run", package, "--inputs", tmp_path / "in.npz", "--outputs", tmp_path / "out.npz", "--print-top", 2
    )
    assert result.exit_code == 0, result.output
    wanted = expected(model, image())
    with np.load(tmp_path / "out.npz") as file:
        np.testing.assert_allclose(file["output_0"], wanted, atol=1e-5)
    assert result.stdout.startswith("y: float32[1, 5], from ")
    assert f"y [{wanted.argmax()}] {wanted.max():.4g}"[:-2] in result.stdout
    assert result.stderr == f"results written to {tmp_path / 'out.npz'}\n"


@pytest.mark.slow
def test_times_and_profile_as_json(package: Path) -> None:
    result = call(
        "run", package, "--print-time", "--profile", "--repeat", 2, "--number", 3, "--json", "--threads", 1
    )
    assert result.exit_code == 0, result.output
    told = json.loads(result.stdout)
    assert len(told["seconds"]["results"]) == 2
    assert told["seconds"]["min"] > 0
    assert told["profile"][0]["name"].startswith("fused_nn_conv2d")
    assert told["outputs"] == {"y": {"dtype": "float32", "shape": [1, 5]}}
    assert told["filled"] == ["data"]
    assert result.stderr == "not given, so filled (random): data\n"


@pytest.mark.slow
def test_times_and_profile_as_text(package: Path) -> None:
    result = call("run", package, "--print-time", "--profile", "--repeat", 1, "--number", 1, "-q")
    assert result.exit_code == 0
    assert "Execution time, 1 repeat" in result.stdout
    assert "fused_nn_conv2d" in result.stdout
    assert result.stderr == ""


@pytest.mark.slow
def test_the_greatest_values_may_be_infinite(package: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "in.npz", data=np.full(SHAPE, 3e38, "float32"))
    result = call(
        "run", package, "-i", tmp_path / "in.npz", "-o", tmp_path / "out", "--print-top", 5, "--json"
    )
    assert result.exit_code == 0, result.output
    told = json.loads(result.stdout)
    assert "inf" in [row["value"] for row in told["outputs"]["y"]["top"]]
    assert told["written"] == str(tmp_path / "out") and (tmp_path / "out").is_file()


def test_show(model: Path) -> None:
    result = call("show", model)
    assert result.exit_code == 0, result.output
    assert "  input data: float32[1, 3, 8, 8]\n  y: float32[1, 5]\n" in result.stdout
    assert "133 parameters, 532 B" in result.stdout
    assert "nn.conv2d + nn.relu" in result.stdout
    assert "kernels after fusion" in result.stdout


def test_show_as_json(model: Path) -> None:
    told = json.loads(call("show", model, "--json").stdout)
    assert told["parameters"] == 4 * 27 + 20 + 5
    conv = next(k for k in told["operators"] if k["operators"] == ["nn.conv2d"])
    assert conv["outputs"] == ["float32[1, 4, 8, 8]"]
    multiply_adds = 2 * 27 * 4 * 64
    assert multiply_adds <= conv["flops"] < 1.2 * multiply_adds
    assert told["flops"] >= conv["flops"]
    assert ["nn.conv2d", "nn.relu"] in [k["operators"] for k in told["groups"]]
    assert told["note"] == ""


def test_show_every_operator_and_the_text(model: Path) -> None:
    every = call("show", model, "--all", "--no-fuse").stdout
    assert every.index("nn.conv2d") < every.index("nn.relu") < every.index("nn.matmul")
    assert "after fusion" not in every
    assert call("show", model, "--text").stdout.startswith("def @main(%data: ")


def test_show_a_node(model: Path) -> None:
    every = call("show", model, "--all").stdout
    assert "node" in every and "bend" in every
    told = json.loads(call("show", model, "--node", "bend", "--json").stdout)
    assert [k["operators"] for k in told["operators"]] == [["nn.relu"]]
    assert [k["nodes"] for k in told["groups"]] == [["conv", "bend"]]
    kernel = json.loads(call("show", model, "--node", "fused_nn_conv2d_nn_relu", "--json").stdout)
    assert [k["nodes"] for k in kernel["groups"]] == [["conv", "bend"]]
    result = call("show", model, "--node", "lstm")
    assert result.exit_code == 1 and "--node lstm: no node or operator of " in result.stderr


def test_show_a_model_of_open_sizes(tmp_path: Path) -> None:
    path = write_small(tmp_path / "open.onnx", batch="n")
    told = json.loads(call("show", path, "--json").stdout)
    assert told["inputs"] == {"data": "float32[n, 3, 8, 8]"}
    assert told["flops"] is None
    fixed = json.loads(call("show", path, "--json", "--shapes", "data:[2,3,8,8]").stdout)
    assert fixed["inputs"] == {"data": "float32[2, 3, 8, 8]"}
    assert fixed["flops"] > 0


# -- what goes wrong ----------------------------------------------------------------------------
def test_a_missing_file(tmp_path: Path) -> None:
    for command in ("compile", "show", "run"):
        result = call(command, tmp_path / "none.onnx")
        assert result.exit_code == 1
        assert result.stdout == ""
        last = result.stderr.splitlines()[-1]
        assert last.startswith(f"error: {tmp_path / 'none.onnx'}: ")
        assert "Traceback" not in result.stderr


def test_errors_as_json(tmp_path: Path) -> None:
    path = write_small(tmp_path / "odd.onnx", operator="Wobble")
    result = call("compile", path, "--json")
    assert result.exit_code == 1
    told = json.loads(result.stdout)["error"]
    assert told["kind"] == "FrontendError"
    assert "Wobble x1: 'bend'" in told["message"]
    assert result.stderr.endswith(f"error: {told['message']}\n")


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--shapes", "data"], "'data' is not a shape"),
        (["--shapes", "date:[1]"], "and the inputs of the model are ['data']"),
        (["--target", "toaster"], "toaster"),
        (["--output-format", "zip"], "it must be one of so, tar"),
        (["-o", "/nowhere/net.tar"], "there is no folder /nowhere"),
        (["-o", "/"], "/: is a folder; give the name of a file in it"),
        (["-o", "net.so"], "net.so: a package is an archive; name it net.tar"),
        (["--target", "metal"], "opencl; 'metal' is not supported yet"),
        (["--disabled-pass", "NoSuchPass"], "NoSuchPass"),
    ],
)
def test_compile_refuses(arguments: list[str], reason: str, model: Path) -> None:
    result = call("compile", model, *arguments)
    assert result.exit_code == 1
    assert reason in result.stderr
    assert result.stdout == ""


def test_what_is_wrong_at_sight_is_said_before_the_work(model: Path) -> None:
    for arguments in (["--target", "toaster"], ["-o", "/nowhere/net.tar"], ["--shapes", "data"]):
        assert "importing" not in call("compile", model, *arguments).stderr


@pytest.mark.slow
def test_run_refuses(package: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "wide.npz", data=np.ones((1, 3, 8, 9), "float32"))
    np.savez(tmp_path / "complex.npz", data=np.ones(SHAPE, "complex64"))
    np.savez(tmp_path / "other.npz", image=image())
    np.savez(tmp_path / "good.npz", data=image())
    (tmp_path / "cut.tar").write_bytes(package.read_bytes()[:9000])
    for arguments, reason in [
        ([tmp_path / "cut.tar"], "cut.tar: the tar archive is damaged: it is truncated"),
        (
            [package, "-i", tmp_path / "wide.npz"],
            "'data' must have shape (1, 3, 8, 8), and an array of shape (1, 3, 8, 9)",
        ),
        ([package, "-i", tmp_path / "complex.npz"], "must be of type float32"),
        (
            [package, "-i", tmp_path / "other.npz"],
            "no input 'image'; its inputs are data: float32[1, 3, 8, 8]",
        ),
        ([package, "-i", tmp_path / "none.npz"], "none.npz: cannot be read: No such file"),
        (
            [package, "-i", tmp_path / "good.npz", "-o", "/nowhere/out.npz"],
            "/nowhere/out.npz: cannot be written",
        ),
        ([package, "--device", "cuda"], "the package is compiled for the CPU"),
        (
            [package, "--shapes", "data:[2,3,8,8]"],
            "the input data: float32[1, 3, 8, 8] cannot have the shape",
        ),
    ]:
        result = call("run", *arguments)
        assert result.exit_code == 1
        assert reason in result.stderr
        assert result.stdout == ""


def test_show_a_package(package: Path) -> None:
    result = call("show", package)
    assert result.exit_code == 0
    assert result.stdout.splitlines()[1:3] == [
        "  input data: float32[1, 3, 8, 8]",
        "  y: float32[1, 5]",
    ]
    assert json.loads(call("show", package, "--json").stdout)["steps"] == 3


def test_the_classic_command(model: Path, package: Path, tmp_path: Path) -> None:
    """004_eb1758ed1c90b5cf, the last line: `tvmc compile` and `tvmc run` take the options of the classic ones."""
    made = tmp_path / "classic.tar"
    assert call("compile", "--target", "llvm", "--output", made, model).exit_code == 0
    np.savez(tmp_path / "in.npz", data=image())
    given = ["--inputs", tmp_path / "in.npz", "--output", tmp_path / "out.npz", "--print-time", "--repeat", 2]
    assert call("run", *given, made).exit_code == 0
    with np.load(tmp_path / "out.npz") as file:
        np.testing.assert_allclose(file["output_0"], expected(model, image()), atol=1e-5)


def test_wrong_usage_is_another_code(model: Path) -> None:
    assert call("compile").exit_code == 2
    assert call("compile", model, "--no-such-option").exit_code == 2
    assert call("run", model, "--repeat", "0").exit_code == 2
    assert call("fly").exit_code == 2


def test_a_fault_of_ours_is_another_code(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*arguments: Any, **options: Any) -> None:
        raise KeyError("lost")

    monkeypatch.setattr(command_line, "show_command", broken)
    result = call("show", model)
    assert result.exit_code == 70
    assert result.stderr.startswith("error: KeyError: 'lost'\nthis is a bug in tilewright")

    def interrupted(*arguments: Any, **options: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(command_line, "show_command", interrupted)
    assert call("show", model).exit_code == 130


def test_warnings_are_progress(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def warned(*arguments: Any, **options: Any) -> None:
        warnings.warn("the size is taken to be 1", stacklevel=1)

    monkeypatch.setattr(command_line, "show_command", warned)
    assert call("show", model).stderr == "warning: the size is taken to be 1\n"
    assert call("show", model, "-q").stderr == ""


def test_each_command_gives_its_settings_to_its_work() -> None:
    commands = [
        *app.registered_commands,
        *(c for g in app.registered_groups for c in g.typer_instance.registered_commands),
    ]
    assert len(commands) == 17
    for command in commands:
        held = inspect.getclosurevars(command.callback).nonlocals
        module, _, function = held["work"].partition(".")
        work = getattr(importlib.import_module(f"tilewright.tvmc.{module}"), function)
        assert [p.annotation for p in inspect.signature(work).parameters.values()] == [
            "Desk",
            held["settings"].__name__,
        ]


def test_help_names_everything() -> None:
    result = call("--help")
    assert result.exit_code == 0
    for word in ("compile", "run", "show", "Exit codes"):
        assert word in result.stdout
    assert "--input-shapes" in call("compile", "--help").stdout
    assert call("--version").stdout.startswith("tilewright ")


def test_help_loads_nothing_heavy() -> None:
    program = (
        "import sys\n"
        "sys.argv = ['tilewright', '--help']\n"
        "from tilewright.__main__ import main\n"
        "try:\n"
        "    main()\n"
        "finally:\n"
        "    print(*{'numpy', 'onnx', 'torch', 'llvmlite', 'rich'} & set(sys.modules), file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.startswith("Usage: tilewright")
    assert done.stderr.split() == []


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="Linux tells processes that their parent is gone")
def test_workers_end_with_their_parent() -> None:
    program = (
        "import os, sys, time\n"
        "from concurrent.futures import ProcessPoolExecutor\n"
        "from multiprocessing import get_context\n"
        "from tilewright.relay.backend.te_compiler import _end_with\n"
        "pool = ProcessPoolExecutor(1, get_context('fork'), _end_with, (os.getpid(),))\n"
        "print(pool.submit(os.getpid).result(), flush=True)\n"
        "pool.submit(time.sleep, 600)\n"
        "time.sleep(600)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    status = Path(f"/proc/{int(parent.stdout.readline())}/stat")
    assert status.exists()
    parent.kill()
    parent.wait()
    for _ in range(200):
        try:
            state = status.read_text().rpartition(")")[2].split()[0]
        except FileNotFoundError:
            break
        if state == "Z":  # dead, and nobody asked for it
            break
        time.sleep(0.1)
    else:
        raise AssertionError("the worker outlived its parent")


@pytest.mark.slow
def test_code_is_written_beside_the_package(model: Path, tmp_path: Path) -> None:
    """The classic options of `tvmc compile`."""
    made = tmp_path / "net.tar"
    classic = (
        "--dump-code",
        "relay,h",
        "--executor",
        "graph",
        "--pass-config",
        "tir.disable_vectorize=true",
        "-v",
    )
    result = call("compile", model, "--target", "llvm", "-o", made, *classic)
    assert result.exit_code == 0, result.output
    assert "nn.conv2d" in Path(f"{made}.relay").read_text() and "#define" in Path(f"{made}.h").read_text()
    for options, told in (
        (("--dump-code", "exe"), "dump_code='exe': it must be of relay, tir, ll, asm, h, cl, cu, ptx"),
        (("--dump-code", "cu"), "the model has no code for a device"),
        (("--pass-config", "tir.disable_vectorize"), "it is name=value"),
    ):
        result = call("compile", model, "-o", made, *options)
        assert result.exit_code == 1 and told in result.stderr


def test_the_classic_home_of_the_commands(capsys: pytest.CaptureFixture[str]) -> None:
    from tilewright.driver.tvmc.main import main

    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0 and capsys.readouterr().out.startswith("tilewright ")


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ("--target=llvm --target-llvm-mcpu=znver4 -o x", "--target|llvm -mcpu=znver4|-o|x"),
        ("a --target llvm --target-llvm-mattr +avx2", "a|--target|llvm -mattr=+avx2"),
        ("--target-llvm-mcpu=znver4 a", "a|--target|llvm -mcpu=znver4"),
        ("a --target llvm", "a|--target|llvm"),
    ],
)
def test_options_of_a_target_go_into_it(given: str, wanted: str) -> None:
    from tilewright.__main__ import with_target_options

    assert with_target_options(given.split()) == wanted.split("|")


def test_each_target_gets_its_own_options() -> None:
    from tilewright.__main__ import with_target_options

    both = ["--target", "opencl -device=mali, llvm", "--target-llvm-mtriple=aarch64-linux-gnu"]
    assert with_target_options(both) == ["--target", "opencl -device=mali, llvm -mtriple=aarch64-linux-gnu"]


@pytest.mark.slow
def test_a_package_runs_on_another_machine(model: Path, package: Path, tmp_path: Path) -> None:
    from tilewright import rpc

    np.savez(tmp_path / "in.npz", data=image())
    with rpc.Server(port=9500, port_end=9900) as server:
        where = ("--rpc-tracker", f"127.0.0.1:{server.port}", "--print-time", "--repeat", 2, "--number", 1)
        result = call("run", package, "-i", tmp_path / "in.npz", "-o", tmp_path / "out.npz", *where, "--json")
    assert result.exit_code == 0, result.output
    assert len(json.loads(result.stdout)["seconds"]["results"]) == 2
    with np.load(tmp_path / "out.npz") as file:
        np.testing.assert_allclose(file["output_0"], expected(model, image()), atol=1e-5)
    result = call("run", package, "--rpc-tracker", "board:port")
    assert result.exit_code == 1 and "it is HOST:PORT" in result.stderr


# -- where packages go ------------------------------------------------------------------------------
@pytest.mark.slow
def test_a_package_for_a_pipe_and_for_stdout(model: Path, package: Path, tmp_path: Path) -> None:
    """A pipe stays one, and the reader gets the bytes; so it is for /dev/null, which root could replace."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    command = [sys.executable, "-m", "tilewright", "compile", str(model), "--target", "llvm", "-o"]
    with subprocess.Popen([*command, str(pipe)], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        got = pipe.read_bytes()
        told, said = process.communicate()
        assert process.returncode == 0, said.decode()
    assert stat.S_ISFIFO(pipe.stat().st_mode) and list(tmp_path.iterdir()) == [pipe]
    assert len(got) == package.stat().st_size and str(pipe).encode() in told
    through = subprocess.run([*command, "/dev/stdout"], capture_output=True, check=True)
    with tarfile.open(fileobj=io.BytesIO(through.stdout)) as archive:
        assert archive.getnames()[0] == "metadata.json"
    assert b"/dev/stdout" in through.stderr


def test_code_beside_a_package_needs_a_package_with_a_place(model: Path) -> None:
    result = call("compile", model, "--target", "llvm", "-o", "/dev/null", "--dump-code", "relay")
    assert result.exit_code == 1
    assert (
        "dump_code=… writes beside the package: give the name of the package, package_path=" in result.stderr
    )


# -- profiles ---------------------------------------------------------------------------------------
def test_profiles(package: Path, tmp_path: Path) -> None:
    text = call("run", package, "--profile", "-q").stdout
    assert "GFLOP/s" in text and "conv +1" in text and "roof: the peak of " in text
    trace, table = tmp_path / "run.trace.json", tmp_path / "run.csv"
    result = call("run", package, "--profile-output", trace, "--json")
    assert result.exit_code == 0, result.output
    assert f"profile written to {trace}" in result.stderr
    rows = json.loads(result.stdout)["profile"]
    assert [r["node"] for r in rows] == ["conv", "p", "fc"] and all(r["seconds"] > 0 for r in rows)
    events = json.loads(trace.read_text())["traceEvents"]
    assert [e["name"] for e in events if e["ph"] == "X"] == ["conv", "p", "fc"]
    call("run", package, "--profile-output", table)
    assert table.read_text().startswith("node,nodes,name,kernel,")
    result = call("run", package, "--profile-output", tmp_path / "run.txt")
    assert result.exit_code == 1
    assert f"{tmp_path}/run.txt: a profile is written to a file named *.csv, *.json (data)" in result.stderr


def test_completion_and_whole_sentences_in_the_list_of_commands() -> None:
    for command in ((), ("db",)):
        text = call(*command, "--help").stdout
        assert "..." not in text.partition("Commands:")[2]
    assert "--install-completion" in call("--help").stdout


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("llvm -mcpu=foo", "LLVM knows no CPU 'foo' for "),
        ("llvm -mtriple=x86_64-pc-windows-msvc", "there are no packages for Windows: "),
    ],
)
def test_targets_are_refused_before_the_import(model: Path, tmp_path: Path, target: str, said: str) -> None:
    result = call("compile", model, "--target", target, "-o", tmp_path / "net.tar")
    assert result.exit_code == 1
    assert said in result.stderr and "importing" not in result.stderr
