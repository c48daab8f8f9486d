"""Tuning of models: the commands `tune`, `db`, `replay`, `compile --tuning-records`, and `tvmc.tune`.

Most tests are told what candidates take; the last ones measure.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx")

from tilewright.driver.tvmc import autotuner
from tilewright.driver.tvmc.app import Tune
from tilewright.driver.tvmc.history import applied
from tilewright.driver.tvmc.tune_display import ModelDisplay
from tilewright.driver.tvmc.tuning import chosen_tasks, model_tasks
from tvmc_models import expected, image, write_branch, write_small
from typer.testing import CliRunner

from tilewright import rpc
from tilewright.__main__ import app
from tilewright.driver import tvmc
from tilewright.tune.measure.measurer import Duel, MeasureInput, MeasureResult, Status
from tilewright.tune.records import database as records_module
from tilewright.tune.records.database import Database
from tilewright.tune.records.files import open_records
from tilewright.tune.records.history import History

CONV, POOL, DENSE = "fused_nn_conv2d_nn_relu", "fused_nn_global_avg_pool2d", "fused_nn_matmul_add"


class Fake:
    """Nothing is built or run: a candidate takes what its decisions say, and the zero-trial schedule longest."""

    def __init__(self, status: Status = Status.OK, interrupt_after: int = 10**9) -> None:
        self.status, self.left, self.seen = status, interrupt_after, 0

    def __enter__(self) -> Fake:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    close = __exit__

    def _result(self, inp: MeasureInput) -> MeasureResult:
        if self.status is not Status.OK:
            return MeasureResult(self.status, error=f"ended by SIGSEGV\n{self.seen}")
        digest = hashlib.sha256(json.dumps(inp.what, sort_keys=True).encode()).digest()
        seconds = 2e-3 if inp.what is None else 1e-3 * (1 + digest[0] / 256)
        return MeasureResult(Status.OK, (seconds,) * 3)

    def measure(self, inputs: Any, incumbent: Any = None, each: Any = None) -> list[MeasureResult]:
        out = []
        for i, inp in enumerate(inputs):
            if self.seen >= self.left:
                raise KeyboardInterrupt
            self.seen += 1
            out.append(self._result(inp))
            if each is not None:
                each(i, inp, out[-1])
        return out

    def duel(self, first: MeasureInput, second: MeasureInput, rounds: int = 12) -> Duel:
        one, other = self._result(first), self._result(second)
        return Duel(one, other, one.time / other.time)


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Fake]:
    """Everything is measured by what it gives, from then on."""

    def use(*args: Any, **kwargs: Any) -> Fake:
        made = Fake(*args, **kwargs)
        monkeypatch.setattr(autotuner, "measurer_for", lambda *_: made)
        return made

    return use


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_small(tmp_path_factory.mktemp("tune") / "small.onnx")


def call(*arguments: Any, stdin: str | None = None) -> Any:
    return CliRunner().invoke(app, [str(a) for a in arguments], input=stdin)


def tuned(model: Path, db: Path, trials: int = 12, *more: Any) -> Any:
    return call("tune", model, "--trials", trials, "--db", db, "--model", "analytical", *more)


# -- tune ---------------------------------------------------------------------------------------------
def test_what_is_said(model: Path, tmp_path: Path, fake: Callable[..., Fake]) -> None:
    fake()
    db = tmp_path / "tune.db"
    result = tuned(model, db)
    assert result.exit_code == 0, result.output
    lines = result.stderr.splitlines()
    assert lines[:2] == [f"importing {model}", f"tuning 3 tasks of small for llvm into {db}"]
    assert lines[2].startswith(f"4/12  {CONV} (conv)  best ") and "times as fast as untuned" in lines[2]
    assert re.search(
        r"model \d\.\d\d ms \(untuned 6\.00 ms\)  \d+\.\d trials/s, at most 0 s left$", lines[-1]
    )
    head, *rows, last = result.stdout.splitlines()
    assert re.match(
        r"small: 12 measured in \d\.\d s; its kernels take \d\.\d\d ms, untuned 6.00 ms: 1\.\d+ times as fast$",
        head,
    )
    assert sorted(row.split()[0] for row in rows) == sorted((CONV, POOL, DENSE))
    assert last == f"compile with them: tilewright compile {model} --tuning-records {db}"
    with Database(db) as kept:
        assert len([r for r in kept.records() if r.origin == "trial"]) == 12
        assert len([r for r in kept.records() if r.origin == "winner"]) == 3


@pytest.mark.slow
def test_as_json_and_again(model: Path, tmp_path: Path, fake: Callable[..., Fake]) -> None:
    """A second search measures nothing twice, and says what it does with what is there."""
    db = tmp_path / "tune.db"
    fake()
    told = json.loads(tuned(model, db, 6, "--json", "-q").stdout)
    assert (told["measured"], told["model"], told["database"]) == (6, "small", str(db))
    assert {t["name"]: t["weight"] for t in told["tasks"]} == {CONV: 1, POOL: 1, DENSE: 1}
    assert told["tuned_seconds"] < told["untuned_seconds"] == 6e-3
    assert all(t["speedup"] > 1 and t["trials"] == 2 and len(t["record"]) == 32 for t in told["tasks"])

    second = fake()
    result = tuned(model, db, 6, "--resume", "--json")
    assert (json.loads(result.stdout)["measured"], second.seen) == (0, 0)
    assert f"{db} has 6 measurements of them" in result.stderr and "all that was asked for" in result.stderr
    result = tuned(model, db, 9, "--resume", "--json")
    assert json.loads(result.stdout)["measured"] == 3
    assert "; up to 3 more are made" in result.stderr
    result = tuned(model, db, 3, "--json")
    assert json.loads(result.stdout)["measured"] == 3
    assert (
        "has 9 measurements" in result.stderr
        and "; 3 more are made (--resume: 3 with those)" in result.stderr
    )
    assert "nothing to resume yet\n" in tuned(model, tmp_path / "new.db", 3, "--resume").stderr
    other = write_branch(tmp_path / "branch.onnx")  # nothing of the one is taken for the other, or lost
    with Database(db) as kept:
        count = len(kept)
    result = tuned(other, db, 4, "--resume", "--json")
    assert json.loads(result.stdout)["measured"] == 4
    assert f"nothing to resume yet: the {count} records of {db} are of other tasks, targets" in result.stderr
    assert json.loads(tuned(model, db, 12, "--resume", "--json").stdout)["measured"] == 0


@pytest.mark.slow
def test_lines_and_prior_records(model: Path, tmp_path: Path, fake: Callable[..., Fake]) -> None:
    """The classic spelling: records in lines of JSON, begun with those of another file."""
    made = fake()
    first, second = tmp_path / "first.json", tmp_path / "second.db"
    assert call("tune", model, "--trials", 6, "-o", first, "--model", "analytical").exit_code == 0
    assert [line[:10] for line in first.read_text().splitlines()[:1]] == ['{"format":']
    result = call(
        "tune",
        model,
        "-n",
        9,
        "--output",
        second,
        "--tuning-records",
        first,
        "--resume",
        "--model",
        "random",
        "--json",
    )
    assert (json.loads(result.stdout)["measured"], made.seen) == (3, 9)
    assert "6 measurements" in result.stderr
    result = call("tune", model, "--db", second, "--prior-records", tmp_path / "none.db")
    assert "none.db: there is no such file" in result.stderr and "importing" not in result.stderr
    first.rename(second.with_suffix(".dump"))
    result = tuned(model, second.with_suffix(".dump"))
    assert "these are lines of JSON, not a database; `tilewright db import tune.db " in result.stderr


@pytest.mark.slow
def test_nothing_can_be_measured(model: Path, tmp_path: Path, fake: Callable[..., Fake]) -> None:
    fake(Status.CRASH)
    result = tuned(model, tmp_path / "tune.db", 9, "--json", "-q")
    assert result.exit_code == 1
    error = json.loads(result.stdout)["error"]
    assert error["kind"] == "TuneError"
    assert error["message"].splitlines() == [
        "tuning small: none of 9 candidates of 3 tasks could be measured",
        "  count  status  cause",
        "      9  crash   ended by SIGSEGV",
    ]
    assert result.stderr.startswith("error: tuning small: none of 9")


def test_an_interrupt_keeps_what_was_measured(model: Path, tmp_path: Path, fake: Callable[..., Fake]) -> None:
    db = tmp_path / "tune.db"
    fake(interrupt_after=6)
    result = tuned(model, db, 12, "--json")
    assert result.exit_code == 130
    told = json.loads(result.stdout)
    assert told["interrupted"] and told["measured"] == 6
    assert told["tuned_seconds"] is None  # the last task was not begun
    assert result.stderr.splitlines()[-1] == (
        f"interrupted: {db} keeps what was measured; the same command with --resume goes on"
    )
    fake()
    assert json.loads(tuned(model, db, 12, "--json", "--resume").stdout)["measured"] == 6


def test_an_interrupt_before_anything_was_measured(
    model: Path, tmp_path: Path, fake: Callable[..., Fake]
) -> None:
    fake(interrupt_after=0)
    result = tuned(model, tmp_path / "tune.db")
    assert result.exit_code == 130
    assert result.stdout.startswith("small: 0 measured in ")
    assert result.stdout.count("nothing measured") == 3


def test_tasks_are_listed_and_chosen(model: Path, tmp_path: Path, fake: Callable[..., Fake]) -> None:
    fake()
    result = call("tune", model, "--tasks", "list", "--db", tmp_path / "never.db")
    assert result.stdout.splitlines()[0] == "small: 3 tasks"
    assert [line.split()[:4] for line in result.stdout.splitlines()[1:]] == [
        ["0", CONV, "(conv)", "1"],
        ["1", POOL, "(p)", "1"],
        ["2", DENSE, "(fc)", "1"],
    ]
    assert not (tmp_path / "never.db").exists()
    told = json.loads(tuned(model, tmp_path / "tune.db", 2, "--tasks", "conv2d", "--json").stdout)
    assert [t["name"] for t in told["tasks"]] == [CONV]
    result = tuned(model, tmp_path / "tune.db", 2, "--tasks", "0,lstm")
    assert result.exit_code == 1
    assert result.stderr.splitlines()[-1] == (
        "error: --tasks 0,lstm: 'lstm' selects none of the 3 tasks; `--tasks list` shows them"
    )


@pytest.mark.slow
def test_tasks_are_known_by_the_nodes_of_the_model(
    model: Path, tmp_path: Path, fake: Callable[..., Fake]
) -> None:
    fake()
    db = tmp_path / "tune.db"
    listed = json.loads(call("tune", model, "--tasks", "list", "--json").stdout)["tasks"]
    assert {t["name"]: t["nodes"] for t in listed} == {CONV: ["conv"], POOL: ["p"], DENSE: ["fc"]}
    (conv,) = (t for t in listed if t["name"] == CONV)
    assert {"conv", "bend", CONV} < set(conv["names"])
    assert conv["shapes"] == "float32[1, 3, 8, 8], float32[4, 3, 3, 3], float32[1, 4, 8, 8]"
    for name in ("bend", next(n for n in conv["names"] if n.startswith("tvmgen_")), conv["workload"][:8]):
        told = json.loads(tuned(model, db, 2, "--tasks", name, "--json").stdout)
        assert [t["name"] for t in told["tasks"]] == [CONV] and told["tasks"][0]["nodes"] == ["conv"]
    assert f"{CONV} (conv)" in tuned(model, db, 3, "--tasks", "conv").stdout
    # The records keep the names, through files too.
    lines = tmp_path / "lines.json"
    call("db", "export", db, lines)
    for file in (db, lines):
        shown = json.loads(call("db", "show", file, "--task", "bend", "--json").stdout)
        assert shown["records"] and call("db", "show", file).stdout.splitlines()[1].endswith("  conv")


def test_a_name_of_several_tasks_is_refused(tmp_path: Path, fake: Callable[..., Fake]) -> None:
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    fake()
    weights = {"a": np.ones((4, 3, 3, 3), "float32"), "b": np.ones((5, 4, 3, 3), "float32")}
    nodes = [
        helper.make_node("Conv", ["data", "a"], ["x"], name="first"),
        helper.make_node("Relu", ["x"], ["r"], name="middle"),
        helper.make_node("Conv", ["r", "b"], ["z"], name="second"),
        helper.make_node("Relu", ["z"], ["y"], name="last"),
    ]
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes, "two", [info("data", TensorProto.FLOAT, [1, 3, 8, 8])], [info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(w, n) for n, w in weights.items()],
    )  # fmt: skip
    path, db = tmp_path / "two.onnx", tmp_path / "two.db"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    tuned(path, db, 8)
    result = call("replay", CONV, "--db", db)
    assert result.exit_code == 1
    head, *rows = result.stderr.splitlines()
    assert head == f"error: {db}: 2 tasks are named {CONV!r}; give the node or the key of one:"
    assert {row.split()[-1] for row in rows} == {"first", "second"}
    # Each is found by its node, and by the name of its step in a profile.
    found = model_tasks(tvmc.load(path), "llvm")
    assert [t.nodes for t, _ in chosen_tasks("second", found)] == [("second",)]
    assert [t.nodes for t, _ in chosen_tasks(f"{CONV}_1", found)] == [("second",)]
    assert len(chosen_tasks(CONV, found)) == 2


def test_ranges_of_tasks(model: Path) -> None:
    found = model_tasks(tvmc.load(model), "llvm")
    assert chosen_tasks("0,1-9", found) == found
    assert chosen_tasks("1-2", found) == found[1:]
    assert chosen_tasks(" all", found) is found


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            ["--model", "none.json"],
            "none.json: there is no such file; `tilewright db train tune.db -o none.json` makes",
        ),
        (
            ["--model", "forest"],
            "--model forest: a cost model is one of auto, trees, analytical, random, or a file",
        ),
        (["--db", "no/where/tune.db"], "no/where/tune.db: there is no folder no/where; make it first"),
        (
            ["--target", "cuda"],
            "does not run on this machine: there is no device cuda(0), so it cannot be measured here; tune there",
        ),
        (["--target", "llvm -mcpu=abacus"], "LLVM knows no CPU 'abacus' for "),
        (
            ["--target", "llvm -mtriple=aarch64-linux-gnu"],
            "cannot be measured here; tune there, or on other machines: --rpc-tracker",
        ),
    ],
)
def test_what_is_wrong_is_said_before_the_work(options: list[str], said: str, model: Path) -> None:
    result = call("tune", model, *options)
    assert result.exit_code == 1
    assert said in result.stderr
    assert "importing" not in result.stderr


def test_a_model_to_tune_or_a_cost_model_to_train() -> None:
    result = call("tune", "--db", "tune.db")
    assert result.exit_code == 1
    assert "give the model to tune: tilewright tune net.onnx --db tune.db; or the file" in result.stderr
    assert call("tune", "net.onnx", "--trials", 0).exit_code == 2


def test_a_cluster_needs_dask(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    result = tuned(model, tmp_path / "tune.db", 3, "--cluster", "tcp://127.0.0.1:9")
    assert result.exit_code == 1
    assert "pip install 'tilewright[fleet]'" in result.stderr


def test_a_table_on_a_terminal(model: Path, tmp_path: Path, fake: Callable[..., Fake]) -> None:
    from io import StringIO

    from tilewright.driver.tvmc.tuning import tune_all

    from tilewright.tune.search.search import SearchOptions

    found, file = model_tasks(tvmc.load(model), "llvm"), StringIO()
    with Database(":memory:") as db, ModelDisplay(found, file, live=True) as display:
        tune_all(
            "small", found, db, 9, measure=fake(), told=display, options=SearchOptions(model="analytical")
        )
        assert display._screen is not None
        from rich.console import Console

        text = StringIO()
        Console(file=text, width=160).print(display._screen.renderable)
    shown = text.getvalue()
    assert "9 of 9 trials, 3 of 3 tasks begun" in shown
    assert "(untuned 6.00 ms)" in shown and "trials/s, at most 0 s left" in shown
    assert shown.count("33%") == 3


# -- compile ------------------------------------------------------------------------------------------
@pytest.mark.slow
def test_compile_takes_records(model: Path, tmp_path: Path, fake: Callable[..., Fake]) -> None:
    fake()
    db, package = tmp_path / "tune.db", tmp_path / "net.tar"
    tuned(model, db)
    result = call("compile", model, "--tuning-records", db, "-o", package)
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines()[-1] == "  3 of 3 programs were built by their records"
    got = tvmc.run(tvmc.TVMCPackage(package), device="cpu", inputs={"data": image()})
    np.testing.assert_allclose(got.get_output("output_0"), expected(model, image()), atol=1e-5)

    call("db", "export", db, tmp_path / "log.json")
    result = call(
        "compile", model, "--tuning-records", tmp_path / "log.json", "-o", package, "--json", "-O", 0
    )
    assert json.loads(result.stdout)["tuned"]["by_records"] < 3
    result = call("compile", model, "--tuning-records", db, "-o", package, "--target", "llvm -num-cores=1")
    assert "0 of 3 programs were built by their records" in result.stdout
    assert (
        f"warning: {db}: there is no record for this target and machine of any of the 3 kernels of this model"
        in result.stderr
    )


def test_logs_of_templates_go_to_their_dispatcher(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tilewright import autotvm

    log, asked = tmp_path / "templates.log", []
    log.write_text(json.dumps({"input": [], "config": {}, "result": []}) + "\n")
    monkeypatch.setattr(autotvm, "apply_history_best", lambda path: (asked.append(path), History())[1])
    with applied([log]):
        assert asked == [str(log)]


@pytest.mark.slow
def test_records_of_another_machine(model: Path, tmp_path: Path, fake: Callable[..., Fake]) -> None:
    fake()
    db, package = tmp_path / "tune.db", tmp_path / "net.tar"
    tuned(model, db, 3)
    with sqlite3.connect(db) as raw:
        raw.execute("UPDATE records SET machine = 'abacus'")
    result = call("compile", model, "--tuning-records", db, "-o", package)
    assert "are of another machine and are not applied: abacus (which is not described)" in result.stderr
    assert "0 of 3" in result.stdout
    result = call("compile", model, "--tuning-records", db, "-o", package, "--records-machine", "abacus")
    assert "3 of 3" in result.stdout and "another machine" not in result.stderr


def foreign(path: Path) -> None:
    with sqlite3.connect(path) as raw:
        raw.execute("CREATE TABLE birds (name TEXT)")


def newer(path: Path) -> None:
    Database(path).close()
    with sqlite3.connect(path) as raw:
        raw.execute("PRAGMA user_version=9")


FILES: dict[str, tuple[Callable[[Path], Any], str]] = {
    "absent": (lambda path: None, "there is no such file; `tilewright tune MODEL --db "),
    "empty": (lambda path: path.touch(), "the file is empty: nothing was tuned into it"),
    "text": (
        lambda path: path.write_text("hello"),
        "this is neither a database of tuning records nor lines of JSON",
    ),
    "foreign": (foreign, "this is a database of something else, not of tuning records"),
    "newer": (newer, "its format is 9, and this tilewright knows up to 1: use a newer one"),
}


@pytest.mark.parametrize("kind", FILES)
def test_files_that_are_no_records(kind: str, model: Path, tmp_path: Path) -> None:
    make, said = FILES[kind]
    path = tmp_path / "x.db"
    make(path)
    for command in (
        ("compile", model, "--tuning-records", path),
        ("db", "show", path),
        ("db", "best", path),
        ("db", "prune", path),
        ("db", "export", path, tmp_path / "y.json"),
        ("db", "merge", tmp_path / "into.db", path),
        ("db", "train", path, "-o", tmp_path / "m.json"),
        ("replay", "x", "--db", path),
    ):
        result = call(*command)
        assert (result.exit_code, command[:2]) == (1, command[:2])
        assert result.stderr.startswith(f"error: {path}: {said}"), (command, result.stderr)
    assert not (tmp_path / "into.db").exists()
    if kind in ("text", "foreign", "newer"):
        result = tuned(model, path)
        assert (result.exit_code, str(path) in result.stderr) == (1, True)


def test_a_database_that_is_locked(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.db"
    Database(path).close()
    monkeypatch.setattr(records_module, "_WAIT", 0.05)
    raw = sqlite3.connect(path, isolation_level=None)
    raw.execute("BEGIN EXCLUSIVE")
    result = call("db", "prune", path)
    raw.close()
    assert result.exit_code == 1
    assert (
        f"{path}: the records cannot be read or written: database is locked; another process has been writing"
        in (result.stderr)
    )


# -- db -----------------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def database(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("db") / "tune.db"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(autotuner, "measurer_for", lambda *_: Fake())
        assert tuned(model, path, 30).exit_code == 0
    return path


@pytest.mark.slow
def test_db_show_and_best(database: Path) -> None:
    lines = call("db", "show", database).stdout.splitlines()
    assert lines[0].split() == ["name", "workload", "target", "machine", "records", "ok", "best", "nodes"]
    assert [line.split()[0] for line in lines[1:4]] == [CONV, POOL, DENSE]
    assert lines[4].startswith("machine ") and lines[4].endswith("(this one)")
    told = json.loads(call("db", "show", database, "--json").stdout)
    assert [t["name"] for t in told["tasks"]] == [CONV, POOL, DENSE]

    rows = call("db", "show", database, "--task", DENSE, "--limit", 3).stdout.splitlines()
    assert rows[0].split()[:5] == ["record", "time", "noise", "origin", "status"]
    assert len(rows) == 5 and re.match(r"and \d+ others \(--limit 0: all\)", rows[-1])
    times = [
        r["time"] for r in json.loads(call("db", "show", database, "-t", DENSE, "--json").stdout)["records"]
    ]
    assert times == sorted(times)
    assert "there is no task 'lstm'; there are: " in call("db", "show", database, "--task", "lstm").stderr

    best = json.loads(call("db", "best", database, "--json").stdout)["best"]
    with Database(database) as db:
        assert {b["uid"] for b in best} == {r.uid for r in db.records() if r.origin == "winner"}
    assert call("db", "best", database, "--task", CONV).stdout.split()[0] == CONV


def test_db_moves_records(database: Path, tmp_path: Path) -> None:
    with Database(database) as db:
        total = len(db.records())
    lines, other = tmp_path / "log.json", tmp_path / "other.db"
    assert call("db", "export", database, lines).stdout == f"{lines}: {total} records of {database}\n"
    assert call("db", "import", other, lines).stdout == (
        f"{other}: {total} new records from {lines}; {total} in all\n"
    )
    told = json.loads(call("db", "merge", other, database, lines, "--json").stdout)
    assert told == {"database": str(other), "new": {str(database): 0, str(lines): 0}, "records": total}
    assert call("db", "prune", other, "--keep", 2).stdout == f"{other}: {total - 9} records gone, 9 left\n"
    result = call("db", "prune", lines)
    assert (
        f"{lines}: these are lines of JSON, not a database; `tilewright db import NEW.db {lines}`"
        in result.stderr
    )
    assert [t["name"] for t in json.loads(call("db", "show", lines, "--json").stdout)["tasks"]] == [
        CONV,
        POOL,
        DENSE,
    ]


def test_an_empty_database_is_said(tmp_path: Path) -> None:
    Database(tmp_path / "x.db").close()
    result = call("db", "show", tmp_path / "x.db")
    assert result.exit_code == 1
    assert "it holds no record yet; `tilewright tune MODEL --db " in result.stderr
    assert "it holds no record of this machine" in call("db", "best", tmp_path / "x.db").stderr


@pytest.mark.slow
def test_a_cost_model_is_trained(
    database: Path, model: Path, tmp_path: Path, fake: Callable[..., Fake]
) -> None:
    pytest.importorskip("xgboost")
    made = tmp_path / "model.json"
    told = json.loads(call("db", "train", database, "-o", made, "--json").stdout)
    assert told["model"] == str(made) and told["records"] >= 8 and told["bytes"] == made.stat().st_size
    again = tmp_path / "again.json"
    result = call("tune", "--model", again, "--db", database)
    assert result.stdout.startswith(
        f"{again}: trained on {told['records']} measurements of {told['tasks']} tasks; use"
    )
    fake()
    result = call("tune", model, "--model", made, "--db", tmp_path / "tune.db", "--trials", 3)
    assert result.exit_code == 0, result.output
    assert "a cost model is a file named" in call("db", "train", database, "-o", tmp_path / "m.txt").stderr


# -- replay -------------------------------------------------------------------------------------------
def test_which_record_is_meant(database: Path) -> None:
    assert (
        "there is no record 'zz', and no record of a task or node of that name; `tilewright db show "
        in call("replay", "zz", "--db", database).stderr
    )
    result = call("replay", "", "--db", database)
    assert re.search(r"\d+ records begin with ''.*; give more of it", result.stderr)
    assert (
        "this is not a line of a tuning record"
        in call("replay", "-", "--db", database, stdin='{"record": {}}').stderr
    )
    with Database(database) as db:
        record = db.records()[1]
    damaged = {k: getattr(record, k) for k in records_module._COLUMNS} | {
        "decisions": [{"stage": 1}],
        "trace": None,
    }
    result = call("replay", json.dumps(damaged), "--db", database)
    assert result.exit_code == 1, result.output
    assert "the decision is for 1, and the stage is" in result.stderr


@pytest.mark.slow
def test_replay(database: Path) -> None:
    """The schedule is built, run and checked in earnest; the recorded time is not that of this machine."""
    with Database(database) as db:
        record = next(r for r in db.records() if r.origin == "winner" and r.decisions is not None)
        row = list(db._db.execute("SELECT * FROM workloads WHERE id = ?", (record.workload,)).fetchone())
    data = {"record": {k: getattr(record, k) for k in records_module._COLUMNS}, "workload": row}
    result = call("replay", "-", "--db", "nowhere.db", "--json", stdin=json.dumps(data))
    assert result.exit_code == 0, result.output
    told = json.loads(result.stdout)
    assert (told["record"], told["recorded"]["seconds"]) == (record.uid, record.time)
    assert told["now"]["status"] == "ok" and 0 < told["now"]["seconds"] < 1
    assert "@T.prim_func" in told["script"] and told["trace"]["steps"]
    text = call("replay", record.uid[:10], "--db", database, "--no-script").stdout
    assert re.search(
        r"now   \S+ \w+, and the result is right\n  now takes \d\.\d+ times as long as then", text
    )
    assert "def apply_trace" in text and "@T.prim_func" not in text


# -- in Python ----------------------------------------------------------------------------------------
@pytest.mark.slow
def test_tune_in_python(model: Path, tmp_path: Path, fake: Callable[..., Fake], capsys: Any) -> None:
    made = fake()
    loaded = tvmc.load(model)
    path = tvmc.tune(
        loaded, "llvm", tuner="xgb_knob", trials=6, enable_autoscheduler=True, log_estimated_latency=True
    )
    assert "estimated latency: " in capsys.readouterr().out
    with Database(path) as db:
        assert len([r for r in db.records() if r.origin == "trial"]) == 6
    lines = tvmc.tune(loaded, "llvm", tmp_path / "log.json", prior_records=path, trials=9, tuner="ga")
    assert (lines, made.seen) == (str(tmp_path / "log.json"), 9)
    before = made.seen
    again = tvmc.tune(loaded, "llvm", lines, trials=9, tuner="random", include_simple_tasks=False)
    heavy = [t for t, _ in model_tasks(loaded, "llvm") if t.name != POOL]
    with open_records(again) as db:  # what was in the file counts, of the tasks that are looked at
        assert sum(r.origin == "trial" for t in heavy for r in db.records(t)) == 9
    assert 0 < made.seen - before < 9
    package = tvmc.compile(loaded, "llvm", tuning_records=[path, Path(lines)])
    got = tvmc.run(package, device="cpu", inputs={"data": image()})
    np.testing.assert_allclose(got.get_output("output_0"), expected(model, image()), atol=1e-5)


def test_tune_refuses_and_takes_figures(model: Path, tmp_path: Path, fake: Callable[..., Fake]) -> None:
    fake()
    loaded = tvmc.load(model)
    with pytest.raises(tvmc.TVMCException, match=r"needs hostname= \(--rpc-tracker HOST:PORT\) too"):
        tvmc.tune(loaded, "llvm", rpc_key="pi")
    with pytest.raises(tvmc.TVMCException, match="trials=0: give at least 1"):
        tvmc.tune(loaded, "llvm", trials=0)
    with pytest.raises(tvmc.TVMCException, match=r"is a folder; give the name of a file in it"):
        tvmc.tune(loaded, "llvm", tmp_path)
    figures = {"num_cores": 2}
    made = tvmc.tune(loaded, "llvm", trials=3, hardware_params=figures, early_stopping=1, tuner="analytical")
    with Database(made) as database:
        assert {r.target for r in database.records()} == {"llvm -keys=cpu -num-cores=2"}


def test_models_of_the_virtual_machine(tmp_path: Path, fake: Callable[..., Fake]) -> None:
    fake()
    loaded = tvmc.load(write_branch(tmp_path / "branch.onnx"))
    path = tvmc.tune(loaded, "llvm", tmp_path / "tune.db", trials=8, tuner="analytical")
    history = History(path)
    tvmc.compile(loaded, "llvm", tuning_records=history)
    assert history.used and not history.missed


# -- in earnest ---------------------------------------------------------------------------------------
@pytest.mark.sample(1)
@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupt_of_the_command(number: int, code: int, model: Path, tmp_path: Path) -> None:
    """Ctrl-C, as a terminal sends it, and a request to end, as a batch system does."""
    db = tmp_path / "tune.db"
    command = [
        sys.executable,
        "-m",
        "tilewright",
        "tune",
        str(model),
        "--db",
        str(db),
        "--model",
        "analytical",
    ]
    environment = {**os.environ, "TILEWRIGHT_CACHE": "0"}
    with subprocess.Popen(
        [*command, "--trials", "500", "--min-gain", "0", "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    ) as process:
        assert process.stderr is not None and process.stdout is not None
        before = ""
        for line in process.stderr:
            before += line
            if " best " in line:
                os.kill(process.pid, number)
                break
        told, rest = process.stdout.read(), before + process.stderr.read()
        assert process.wait() == code, rest
    data = json.loads(told)
    assert data["interrupted"] and 0 < data["measured"] < 500
    assert "Traceback" not in rest and "--resume goes on" in rest
    assert not list(Path(tempfile.gettempdir()).glob(f"tilewright-measure-{process.pid}-*"))
    with Database(db) as kept:
        assert {r.status for r in kept.records()} == {"ok"}


def test_help_has_examples() -> None:
    text = call("tune", "--help").stdout
    assert "tilewright tune net.onnx --target llvm --trials 500 --db tune.db\n" in text
    assert "tilewright db merge all.db monday.db tuesday.db" in call("db", "merge", "--help").stdout
    assert all(
        name in call("db", "--help").stdout for name in "merge show best prune export import train".split()
    )
    assert Tune().trials == autotuner.DEFAULT_TRIALS


@pytest.mark.slow
def test_the_command_line_measures_through_a_tracker(model: Path, tmp_path: Path) -> None:
    with rpc.Tracker(port=9500, port_end=9900) as tracker:
        place = f"127.0.0.1:{tracker.port}"
    result = call("tune", model, "--rpc-tracker", place, "--trials", 1, "--db", tmp_path / "tune.db")
    assert result.exit_code == 1 and "needs rpc_key= (--rpc-key) too" in result.output
    result = call(
        "tune", model, "--rpc-tracker", place, "--rpc-key", "pi", "--trials", 1, "--db", tmp_path / "tune.db"
    )
    assert result.exit_code == 1 and "no server of the key 'pi' measures" in result.output
