"""Nodes are immutable at run time in the tests, and the repository's caches are left alone.

`expect(program, '''…''')` compares a program's text with a literal in the test; `pytest --update-expect`
writes the literals anew. `pytest --round-trip` also checks that programs are what their text says.
`pytest --sample` takes a share of the long tables of cases, as `sampling.py` says. Machine code of some rooms is kept for
the run, and for its workers together: LLVM works once on each program.
`pytest --hide` runs what speaks of packages of the system without them; `needs.py` says how a test names what it needs.
"""

from __future__ import annotations

import ast
import gc
import inspect
import os
import re
import shutil
import signal
import tempfile
import textwrap
import threading
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("TILEWRIGHT_CHECK", "1")
# Tests see LLVM at work, each of them or (in the rooms of `_COMPILED_ONCE`) the first that has the program. Those of
# the cache switch it on in folders of their own.
os.environ["TILEWRIGHT_CACHE"] = "0"
# Nor do figures that the user has measured show in tests: those of calibration have folders of their own.
os.environ["TILEWRIGHT_CONFIG_DIR"] = os.path.join(tempfile.gettempdir(), "tilewright-without-configuration")
# No processes compile in the background of tests of dynamic models; those of versions switch them on.
os.environ["TILEWRIGHT_VERSIONS"] = "0"
# What OpenMP and OpenBLAS compute for tests is small, and their threads wait for each other by spinning: with a test
# process on each core that takes many times as long as one thread does.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import how_many
import needs
import numpy as np
import pytest
import sampling

_UPDATES = pytest.StashKey[dict[Path, dict[int, str]]]()
_MADE = pytest.StashKey[str]()  # the folder of machine code, where this process made it

# Rooms whose tests ask what programs compute, and compile the same ones again and again.
_COMPILED_ONCE = frozenset(
    {"auto_scheduler", "autotvm", "compiler", "package", "relay", "seeds", "topi", "tune", "tvmc", "vta"}
)

# Files of many small graphs that ask what operators and passes compute. What LLVM makes of scheduled kernels is seen in
# tests of models, of `topi` and of `tune`: here it takes the loops as they are, at a tenth of the time.
_VALUES_ONLY = (
    "test_deployment", "test_graphs", "test_quantization", "test_quantize_command", "test_relay_data_check",
    "test_relay_deep", "test_relay_onnx", "test_relay_op_", "test_relay_pass_", "test_relay_quantize",
    "test_relay_torch_ops", "test_relay_vm", "test_torch_models",
)  # fmt: skip

# Tests of which a sampled run sees the values alone: LLVM takes many seconds for kernels of any size and for the forty
# of ResNet-50, and other tests of the same models have its full attention.
_VALUES_IN_SAMPLES = (
    "test_any_size_agrees_with_onnxruntime", "test_load_compile_run_of_resnet_50", "test_symbolic",
)  # fmt: skip

# Rooms of tables of values: in a sampled run LLVM optimizes the case that leads a table, and takes the others as they are;
# in `make test-fast` it takes all as they are.
_LED = frozenset({"topi"})


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-expect", action="store_true", help="write the texts that `expect` compares anew"
    )
    parser.addoption(
        "--round-trip", action="store_true", help="print and read back every program that the tests make"
    )
    parser.addoption(
        "--hide", action="store_true", help="without the packages of the system: files that speak of them"
    )
    sampling.add_options(parser)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    sampling.tell_worker(node)


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_UPDATES] = {}
    sampling.configure(config)
    if not hasattr(config, "workerinput"):  # workers have the same environment
        config.stash[_MADE] = os.environ["TILEWRIGHT_CACHE_DIR"] = tempfile.mkdtemp(
            prefix="tilewright-tests-"
        )
    # A shell starts what runs in the background deaf to Ctrl-C, and so would be the processes that tests interrupt.
    if (
        signal.getsignal(signal.SIGINT) is signal.SIG_IGN
        and threading.current_thread() is threading.main_thread()
    ):
        signal.signal(signal.SIGINT, signal.default_int_handler)
    gc.disable()  # until all is collected, which makes no garbage and much that stays
    if config.getoption("--hide") and not hasattr(config, "workerinput"):  # workers have the same environment
        needs.hide()
    if _is_fast(config):
        how_many.share = 8
    elif config.option.sample_seed is not None:
        how_many.share = 3
    if config.getoption("--round-trip"):
        import round_trip

        round_trip.watch()


def pytest_unconfigure(config: pytest.Config) -> None:
    if _MADE in config.stash:
        shutil.rmtree(config.stash[_MADE], ignore_errors=True)


def pytest_sessionfinish(session: pytest.Session) -> None:
    for path, texts in session.config.stash[_UPDATES].items():
        path.write_text(_with_literals(path.read_text(encoding="utf-8"), texts), encoding="utf-8")


# `make test-fast` takes the first case of each table in rooms whose tests are tables of many like cases, and
# an eighth of the long tables elsewhere.
_TABLES = (
    "auto_scheduler", "autotvm", "backends", "codegen", "compiler", "relay", "schedule", "script", "seeds", "te",
    "tir", "topi", "transform", "tune", "tvmc",
)  # fmt: skip
_LONG = 5  # cases of a table of which not all are wanted


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    wanted = not config.getoption("--hide") or collection_path.suffix != ".py"
    return None if wanted or needs.speaks_of_packages(collection_path) else True


@pytest.hookimpl(tryfirst=True)  # before any fixture
def pytest_runtest_setup(item: pytest.Item) -> None:
    room = _room(item)
    os.environ["TILEWRIGHT_CACHE"] = str(int(room in _COMPILED_ONCE))
    sampled = item.config.option.sample_seed is not None
    if (
        item.path.name.startswith(_VALUES_ONLY)
        or (sampled and item.name.startswith(_VALUES_IN_SAMPLES))
        or (room in _LED and (_is_fast(item.config) or not sampling.leads(item)))
    ):
        os.environ["TILEWRIGHT_LLVM_LEVEL"] = "0"
    else:
        os.environ.pop("TILEWRIGHT_LLVM_LEVEL", None)
    needs.skip_without(*needs.named_by(item))


def _is_fast(config: pytest.Config) -> bool:
    return bool(config.option.markexpr == "not slow")


def _room(item: pytest.Item) -> str:
    """The folder of a test in the folder of tests."""
    place = item.path.relative_to(Path(__file__).parent).parts
    return place[0] if len(place) > 1 else ""


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """What was left out, and what was skipped, by name, once."""
    if config.option.sample_seed is not None:
        terminalreporter.write_line(sampling.told(config))
    reasons = needs.skipped(terminalreporter.stats.get("skipped", ()))
    if reasons:
        terminalreporter.section("skipped")
    for count, reason in reasons:
        terminalreporter.write_line(f"{count:5} {reason}")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    needs.check_names(items)
    # What takes longest begins first, with the tests that share its fixtures: no worker ends with it while others idle.
    longest = {item.path for item in items if item.get_closest_marker("long") is not None}
    items.sort(key=lambda item: item.path not in longest)
    tables: dict[str, list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("heavy") is not None:
            item.add_marker(pytest.mark.slow)  # so that `make test-fast` leaves it out too
        name, _, case = item.nodeid.partition("[")
        if case and item.get_closest_marker("slow") is None:
            tables.setdefault(name, []).append(item)
    for first, *others in tables.values():
        whole = first.path.parent.name not in _TABLES
        for item in others:
            # by a number of the case itself: every eighth one might have one type or one size throughout
            if not whole or (len(others) >= _LONG and zlib.crc32(item.name.encode()) % 8):
                item.add_marker(pytest.mark.slow)
    if config.option.sample_seed is not None:
        sampling.take(config, items)
    if config.getoption("--hide"):
        left = [
            item for item in items if item.get_closest_marker("slow") and not needs.reaches_packages(item)
        ]
        config.hook.pytest_deselected(items=left)
        items[:] = [item for item in items if item not in set(left)]


def pytest_collection_finish() -> None:
    """What was loaded and collected stays to the end: the garbage collector need not walk it again and again."""
    gc.collect()
    gc.freeze()
    gc.enable()


@pytest.fixture
def expect(request: pytest.FixtureRequest) -> Callable[[Any, str], None]:
    """Compares a text, or a program's script without its head of comments, with a literal."""

    def check(actual: Any, expected: str) -> None:
        text = _text(actual)
        if request.config.getoption("--update-expect"):
            frame = inspect.currentframe()
            assert frame is not None and frame.f_back is not None
            path = Path(frame.f_back.f_code.co_filename)
            request.config.stash[_UPDATES].setdefault(path, {})[frame.f_back.f_lineno] = text
            return
        assert text == textwrap.dedent(expected).strip()

    return check


@pytest.fixture
def agree() -> Callable[..., None]:
    """Runs two programs by the interpreter, on copies of the same arrays, and compares what they leave."""
    from tilewright import tir

    def check(before: Any, after: Any, *arrays: Any, **options: Any) -> None:
        want, got = ([np.copy(a) if isinstance(a, np.ndarray) else a for a in arrays] for _ in range(2))
        tir.interpret(before, *want, **options)
        tir.interpret(after, *got, **options)
        for x, y in zip(want, got, strict=True):
            np.testing.assert_array_equal(x, y, err_msg=str(after))

    return check


@pytest.fixture
def refused() -> Callable[..., str]:
    """The text of the refusal that a step on a schedule ends with; the schedule must be as it was.

    Of the nest in it only the marked line is kept, once the rest was found to be the program, line for line;
    with `whole` all of it is.
    """
    from tilewright.ir.errors import ScheduleError

    def check(sch: Any, step: Callable[[], Any], whole: bool = False) -> str:
        before, steps = sch.mod, len(sch.trace)
        with pytest.raises(ScheduleError) as caught:
            step()
        assert sch.mod is before
        assert len(sch.trace) == steps
        text = re.sub(r"(  at \S+\.py):\d+", r"\1:LINE", str(caught.value))
        return text if whole else _folded(text, getattr(caught.value, "program", None))

    return check


_MARK = "    # <-- here"


def _folded(text: str, program: Any) -> str:
    from tilewright.tir.schedule.primitive import nest_text

    if program is None:
        return text
    lines, whole = text.splitlines(), nest_text(program, None).splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("  | "))
    shown = [line.removeprefix("  | ") for line in lines[start : start + len(whole)]]
    assert [line.removesuffix(_MARK) for line in shown] == whole
    marked = [f"  | {line}" for line in shown if line.endswith(_MARK)]
    assert len(marked) <= 1
    lines[start : start + len(whole)] = ["  | …", *marked, "  | …"] if marked else ["  | …"]
    return "\n".join(lines)


def _text(actual: Any) -> str:
    text = actual if isinstance(actual, str) else actual.script()
    lines = text.splitlines()
    while lines and (lines[0].startswith("# from ") or not lines[0]):
        del lines[0]
    return "\n".join(line.rstrip() for line in lines).strip()


def _with_literals(source: str, texts: dict[int, str]) -> str:
    """The source with the second argument of the `expect` calls at some lines replaced."""
    lines = source.splitlines(keepends=True)
    calls = [
        n
        for n in ast.walk(ast.parse(source))
        if isinstance(n, ast.Call) and isinstance(n.func, ast.Name) and n.func.id == "expect"
    ]
    for call in sorted(calls, key=lambda c: -c.lineno):
        text = next((t for at, t in texts.items() if call.lineno <= at <= (call.end_lineno or at)), None)
        if text is None:
            continue
        held = call.args[1]
        if isinstance(held, ast.Constant) and textwrap.dedent(str(held.value)).strip() == text:
            continue
        indent = lines[call.lineno - 1][: len(lines[call.lineno - 1]) - len(lines[call.lineno - 1].lstrip())]
        body = textwrap.indent(text.replace("\\", "\\\\").replace('"""', '\\"""'), indent + "    ")
        literal = f'"""\n{body}\n{indent}    """'
        first, last = held.lineno - 1, (held.end_lineno or held.lineno) - 1
        head = lines[first].encode()[: held.col_offset].decode()
        tail = lines[last].encode()[held.end_col_offset :].decode()
        lines[first : last + 1] = [head + literal + tail]
    return "".join(lines)
