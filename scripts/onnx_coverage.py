"""Run the backend tests of the onnx package on tilewright and write docs/onnx-coverage.md.

    python scripts/onnx_coverage.py                 all tests, the page written
    python scripts/onnx_coverage.py --only resize   tests whose name has this, the failures printed

Tests run in a child process, one after the other. A child that crashes or takes too long is replaced; the test it
was at counts as crashed or hung. The results of random operators are compared by shape and type only.
"""

from __future__ import annotations

import argparse
import json
import re
import selectors
import subprocess
import sys
import time
import warnings
from collections import defaultdict
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "onnx-coverage.md"
KINDS = ("node", "simple", "pytorch-converted", "pytorch-operator", "real")  # as ONNX sorts its tests
_RANDOM = re.compile(r"test_(bernoulli|training_dropout(?!_zero))")


# ---------------------------------------------------------------------------- the child
def load_tests() -> list[Any]:
    """All tests: nodes, which ONNX makes from its examples, small graphs, layers of PyTorch, and networks."""
    warnings.simplefilter("ignore")
    from onnx.backend.test.loader import load_model_tests

    return [t for kind in KINDS for t in load_model_tests(kind=kind)]


def model_of(test: Any) -> Any:
    """The model of a test as its ModelProto or its path."""
    if test.model is not None:
        return test.model
    return str(_file_of(test) if test.url else Path(test.model_dir) / "model.onnx")


def _file_of(test: Any) -> Path:
    """The file of a network, which comes without its weights' values."""
    import onnx

    return Path(onnx.__file__).parent.parent / test.url


def data_of(test: Any, model: Any) -> list[tuple[list[Any], list[Any]]]:
    """Inputs and wanted outputs of a test."""
    from onnx import load
    from onnx.backend.test.runner import Runner

    if test.data_sets is not None:
        return [(list(i), [expected(o) for o in outs]) for i, outs in test.data_sets]
    proto = load(model)
    held = {i.name for i in proto.graph.initializer}
    inputs = [i for i in proto.graph.input if i.name not in held]
    if test.url:
        made = [Runner.generate_dummy_data(i, seed=0, name=test.model_name, random=False) for i in inputs]
        stem = _file_of(test).with_suffix("")
        paths = [Path(f"{stem}_output_{k}.pb") for k in range(len(proto.graph.output))]
        return [(made, _tensors(paths, proto.graph.output))]
    sets = []
    for folder in sorted(Path(test.model_dir).glob("test_data_set_*")):
        parts = (("input", inputs), ("output", proto.graph.output))
        found = [
            _tensors(
                [folder / f"{word}_{k}.pb" for k in range(len(v)) if (folder / f"{word}_{k}.pb").exists()], v
            )
            for word, v in parts
        ]
        sets.append((found[0], found[1]))
    return sets


def _tensors(paths: list[Path], infos: Any) -> list[Any]:
    """The values in files, each read as what the graph says it is."""
    from onnx import SequenceProto, TensorProto, numpy_helper

    out = []
    for path, info in zip(paths, infos, strict=False):
        if info.type.HasField("sequence_type"):
            sequence = SequenceProto()
            sequence.ParseFromString(path.read_bytes())
            out.append([numpy_helper.to_array(t) for t in sequence.tensor_values])
        else:
            tensor = TensorProto()
            tensor.ParseFromString(path.read_bytes())
            out.append(numpy_helper.to_array(tensor))
    return out


def expected(value: Any) -> Any:
    """A wanted output as an array or a list of them."""
    from onnx import TensorProto, numpy_helper

    if isinstance(value, TensorProto):
        return numpy_helper.to_array(value)
    return [expected(v) for v in value] if isinstance(value, (list, tuple)) else value


def pairs(found: list[Any], wanted: list[Any]) -> list[tuple[Any, Any]]:
    """Results beside what they should be, those in sequences one by one."""
    out: list[tuple[Any, Any]] = []
    for f, w in zip(found, wanted, strict=True):
        out += pairs(list(f), w) if isinstance(w, list) else [(f, w)]
    return out


def error_in_ulp(found: Any, wanted: Any) -> float:
    """The maximum error in ulp; for elements near 0, in ulp of a thousandth of the maximum element."""
    import numpy as np

    step = {"float16": 2.0**-10, "bfloat16": 2.0**-7, "float32": 2.0**-23, "float64": 2.0**-52}.get(
        wanted.dtype.name
    )
    if step is None:
        return 0.0
    a, b = np.asarray(found, np.float64), np.asarray(wanted, np.float64)
    good = np.isfinite(a) & np.isfinite(b)
    if not good.any():
        return 0.0
    size = np.abs(b[good])
    scale = 2.0 ** np.floor(np.log2(np.maximum(np.maximum(size, size.max() * 1e-3), 1e-30)))
    return float((np.abs(a[good] - b[good]) / (scale * step)).max())


def compare(test: Any, results: list[tuple[Any, Any]]) -> None:
    """Raise an error where a result is not what it should be; of random operators, by shape and type."""
    from onnx.backend.test.runner import Runner

    for found, wanted in results:
        if _RANDOM.match(test.name):
            assert found.shape == wanted.shape, f"{found.shape} and not {wanted.shape}"
            assert found.dtype == wanted.dtype, f"{found.dtype} and not {wanted.dtype}"
        else:
            Runner.assert_similar_outputs([wanted], [found], test.rtol, test.atol)


def run_one(test: Any) -> dict[str, Any]:
    """What became of one test."""
    from tilewright.contrib import onnx_backend
    from tilewright.ir.errors import FrontendError

    worst, model = 0.0, model_of(test)
    try:
        prepared = onnx_backend.prepare(model)
        for inputs, wanted in data_of(test, model):
            found = list(prepared.run(inputs))
            try:
                compare(test, pairs(found, wanted))
            except (AssertionError, TypeError) as error:
                return {"state": "wrong", "why": " ".join(str(error).split())[:300]}
            if not _RANDOM.match(test.name):
                worst = max([worst, *(error_in_ulp(f, w) for f, w in pairs(found, wanted))])
    except FrontendError as error:
        return {"state": "refused", "why": str(error).removeprefix(f"{model}: ")}
    except Exception as error:
        return {"state": "failed", "why": f"{type(error).__name__}: {error}"}
    return {"state": "passed", "ulp": worst}


def child(names: list[str], every: int) -> None:
    """Run tests by name, and every so many of all of them; a line of JSON first, and before and after each."""
    tests = load_tests()
    others = sorted(t.name for t in tests)[::every] if every else []
    wanted = {*names, *others}
    print(json.dumps({"wanted": sorted(wanted)}), flush=True)
    for test in tests:
        if test.name in wanted:
            print(json.dumps({"test": test.name}), flush=True)
            begin = time.monotonic()
            row = run_one(test)
            print(json.dumps({"test": test.name, **row, "seconds": time.monotonic() - begin}), flush=True)


# ---------------------------------------------------------------------------- the parent
def run_all(names: list[str], limit: float, every: int = 0) -> dict[str, dict[str, Any]]:
    """The state of each test, whatever it did to its process; with `every`, also of every so many of all."""
    done: dict[str, dict[str, Any]] = {}
    rest = names
    while rest or every:
        current, hung, wanted = _one_child(rest, done, limit, every)
        rest, every = [n for n in wanted if n not in done], 0
        if rest:
            done[current or rest[0]] = {
                "state": "hung" if hung else "crashed",
                "why": f"no answer within {limit:.0f} s" if hung else "",
            }
            rest = [n for n in rest if n not in done]
    return done


def _one_child(
    rest: list[str], done: dict[str, dict[str, Any]], limit: float, every: int
) -> tuple[str, bool, list[str]]:
    """Run tests in a child until it ends; the test it was at, whether it had to be stopped, and what it was to run."""
    command = [sys.executable, str(Path(__file__)), "--child", "--every", str(every)]
    wanted = rest
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write("\n".join(rest))
    process.stdin.close()
    watch = selectors.DefaultSelector()
    watch.register(process.stdout, selectors.EVENT_READ)
    current = ""
    while True:
        if not watch.select(limit + 60 * (not current)):
            process.kill()
            process.wait()
            return current, True, wanted
        line = process.stdout.readline()
        if not line:
            process.wait()
            return current, False, wanted
        row = json.loads(line)
        if "wanted" in row:
            wanted = row["wanted"]
            continue
        current = row["test"]
        if "state" in row:
            done[current] = row
            current = ""


def operator_of(test: Any, plain: dict[str, str]) -> str:
    """The operator a test is about; its expanded form is about the same."""
    name = re.sub(r"_expanded.*$", "", test.name)
    if test.kind != "node":
        return f"({test.kind})"
    node = test.model.graph.node[0]
    return plain.get(name) or (f"{node.domain}.{node.op_type}" if node.domain else node.op_type)


def page(tests: list[Any], done: dict[str, dict[str, Any]]) -> str:
    """The report as a page."""
    import onnx

    plain = {}
    for t in tests:
        if t.kind != "node":
            continue
        nodes = t.model.graph.node
        if len(nodes) == 1 and "_expanded" not in t.name:
            plain[t.name] = f"{nodes[0].domain}.{nodes[0].op_type}" if nodes[0].domain else nodes[0].op_type
    rows: dict[str, list[tuple[str, dict[str, Any]]]] = defaultdict(list)
    for t in tests:
        if t.name in done:
            rows[operator_of(t, plain)].append((t.name, done[t.name]))
    states = [r["state"] for r in done.values()]
    count = {s: states.count(s) for s in ("passed", "refused", "failed", "wrong", "crashed", "hung")}
    lines = [
        "# ONNX operators",
        "",
        f"The {len(done)} backend tests of onnx {onnx.__version__}: {count['passed']} pass, {count['refused']} are "
        f"refused with an error that gives the reason, {count['failed']} fail otherwise, {count['wrong']} differ by "
        "more than "
        f"their tolerance, {count['crashed']} crash, {count['hung']} hang. Written by `scripts/onnx_coverage.py`.",
        "",
        "The error is the maximum over the operator's passing tests, in ulp; for elements much smaller than the "
        "maximum of their tensor, relative to a thousandth of that maximum. Tests in parentheses are no tests of one "
        "operator: small graphs, layers of PyTorch, networks. Random operators are compared by shape and type.",
        "",
        "| operator | passed | of | max error (ulp) |",
        "|---|---|---|---|",
    ]
    for op in sorted(rows):
        passed = [r for _, r in rows[op] if r["state"] == "passed"]
        worst = max((r["ulp"] for r in passed), default=0.0)
        lines.append(f"| {op} | {len(passed)} | {len(rows[op])} | {f'{worst:.1f}' if passed else ''} |")
    lines += ["", "## Not passed", "", "| test | state | reason |", "|---|---|---|"]
    for op in sorted(rows):
        for name, row in sorted(rows[op]):
            if row["state"] != "passed":
                why = re.sub(r"\s+", " ", row.get("why", "")).removeprefix(f"{name}: ").replace("|", "\\|")
                lines.append(f"| {name} | {row['state']} | {why[:160]} |")
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", default="", help="a regular expression for the names of tests")
    parser.add_argument("--limit", type=float, default=60.0, help="seconds for one test")
    parser.add_argument("--json", type=Path, help="write the state of each test there as well")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--every", type=int, default=0, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        child(sys.stdin.read().split(), given.every)
        return 0
    tests = [t for t in load_tests() if re.search(given.only, t.name)]
    done = run_all([t.name for t in tests], given.limit)
    bad = {n: r for n, r in done.items() if r["state"] != "passed"}
    print(f"{len(done) - len(bad)} of {len(done)} passed", file=sys.stderr)
    if given.json:
        given.json.write_text(json.dumps(done, indent=1))
    if given.only:
        for name, row in sorted(bad.items()):
            print(f"{name}: {row['state']}: {row.get('why', '')}")
    else:
        PAGE.parent.mkdir(exist_ok=True)
        PAGE.write_text(page(tests, done))
    return 1 if any(r["state"] in ("crashed", "hung") for r in done.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
