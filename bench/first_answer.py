"""The first answer of a model, beside onnxruntime: from the file on disk to the first result, in a fresh process.

    python bench/first_answer.py                                 ResNet-50, MobileNetV2, BERT
    python bench/first_answer.py --only resnet50 --rounds 5

Four ways, each in a process of its own, in turn: tilewright with an empty cache, waiting for all kernels
(`relay.build`) and with tiers (the option `relay.backend.tiers`); tilewright with the cache that this left;
onnxruntime. The clock starts when Python has loaded the packages; loading them is a column of its own. CPU seconds are
those of the process, in brackets those of its workers up to then: on a machine that others use they say more than the
clock. Memory is the most that the process held. The median over the rounds counts. With --realtime the process runs
ahead of all else on the machine; background workers do not.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from cpu_kernels import machine_text
from model_workers import peak_memory
from models import MODELS, error_of, read_inputs, write_model

WAYS = ("build", "tiers", "cache", "onnxruntime")


def cpu_seconds() -> tuple[float, float]:
    own, workers = (resource.getrusage(w) for w in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return own.ru_utime + own.ru_stime, workers.ru_utime + workers.ru_stime


class Clock:
    """Seconds and CPU seconds of each phase."""

    def __init__(self) -> None:
        self.last = (time.perf_counter(), *cpu_seconds())
        self.phases: dict[str, tuple[float, ...]] = {}

    def done(self, phase: str) -> None:
        now = (time.perf_counter(), *cpu_seconds())
        self.phases[phase] = tuple(b - a for a, b in zip(self.last, now))
        self.last = now


def answer(way: str, name: str, folder: Path, threads: int, realtime: bool) -> dict[str, Any]:
    """The phases up to the first result, in this process."""
    if realtime:
        alone = os.SCHED_RESET_ON_FORK if way == "tiers" else 0
        os.sched_setscheduler(0, os.SCHED_FIFO | alone, os.sched_param(1))
    inputs = read_inputs(MODELS[name], folder)
    reference = np.load(folder / f"{name}.reference.npy")
    path = str(folder / f"{name}.onnx")
    clock = Clock()
    found = (_onnxruntime if way == "onnxruntime" else _tilewright)(way, path, inputs, threads, clock)
    memory = peak_memory()  # getrusage would tell that of the parent if it held more
    return {"phases": clock.phases, "memory": memory, "error": error_of(found, reference)}


def _tilewright(way: str, path: str, inputs: dict[str, Any], threads: int, clock: Clock) -> Any:
    import tilewright as tvm
    from tilewright import relay
    from tilewright.contrib import graph_executor

    _ = relay.build, relay.frontend.from_onnx  # loads the compiler
    clock.done("load")
    mod, params = relay.frontend.from_onnx(path)
    clock.done("import")
    with tvm.transform.PassContext(opt_level=2, config={"relay.backend.tiers": way == "tiers"}):
        lib = relay.build(mod, target=f"llvm -num-cores={threads}", params=params)
    clock.done("compile")
    model = graph_executor.GraphModule(lib["default"](tvm.cpu(0)))
    model.run(**inputs)
    found = model.get_output(0).numpy()
    clock.done("run")
    if way == "tiers":
        lib.wait()
        clock.phases["final"] = (time.perf_counter() - clock.last[0],)
    return found


def _onnxruntime(way: str, path: str, inputs: dict[str, Any], threads: int, clock: Clock) -> Any:
    import onnxruntime

    clock.done("load")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = threads, 3
    clock.done("import")
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    clock.done("compile")
    found = session.run(None, inputs)[0]
    clock.done("run")
    return np.asarray(found)


def measured(name: str, options: argparse.Namespace, folder: Path) -> dict[str, list[dict[str, Any]]]:
    out: dict[str, list[dict[str, Any]]] = {way: [] for way in WAYS}
    for _ in range(options.rounds):
        for way in WAYS:
            with tempfile.TemporaryDirectory(prefix="tilewright-bench-") as empty:
                if way == "build":
                    cache = folder / "cache"  # that of the way "cache"
                    subprocess.run(["rm", "-rf", str(cache)], check=True)
                else:
                    cache = folder / "cache" if way == "cache" else Path(empty)
                environment = {**os.environ, "TILEWRIGHT_CACHE_DIR": str(cache), "TILEWRIGHT_CACHE": "1"}
                environment.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed package has its bytecode
                command = [sys.executable, __file__, "answer", way, name, str(folder), str(options.threads)]
                command += ["1" if options.realtime else "0"]
                done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
            out[way].append(json.loads(done.stdout.splitlines()[-1]))
    return out


def row(way: str, samples: list[dict[str, Any]]) -> list[str]:
    def median(phase: str, what: int = 0) -> float:
        return statistics.median(s["phases"][phase][what] for s in samples)

    phases = ("import", "compile", "run")
    wall = statistics.median(sum(s["phases"][p][0] for p in phases) for s in samples)
    own = statistics.median(sum(s["phases"][p][1] for p in phases) for s in samples)
    workers = statistics.median(sum(s["phases"][p][2] for p in phases) for s in samples)
    cells = [way, f"{median('load'):.2f}", *(f"{median(p):.2f}" for p in phases), f"{wall:.2f}"]
    cells.append(f"{own:.2f}" + (f" ({workers:.1f})" if workers > 0.05 else ""))
    cells.append(f"{statistics.median(s['memory'] for s in samples) / 1e6:.0f}")
    cells.append(f"{max(s['error'] for s in samples):.0e}")
    return cells


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="resnet50,mobilenetv2,bert", help="names of models")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--realtime", action="store_true", help="for a machine that others use")
    parser.add_argument(
        "--folder", default="", help="where the models are kept; a temporary folder otherwise"
    )
    options = parser.parse_args()
    print(machine_text(), flush=True)
    heads = ["", "load s", "import s", "compile s", "run s", "first answer s", "CPU s", "peak MB", "error"]
    with tempfile.TemporaryDirectory(prefix="tilewright-bench-") as name:
        folder = Path(options.folder or name)
        folder.mkdir(parents=True, exist_ok=True)
        for each in options.only.split(","):
            write_model(MODELS[each], folder)
            found = measured(each, options, folder)
            print(f"\n{MODELS[each].title}\n\n| " + " | ".join(heads) + " |\n|---" + "|---:" * 8 + "|")
            for way in WAYS:
                print("| " + " | ".join(row(way, found[way])) + " |", flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["answer"]:
        way, name, folder, threads, realtime = sys.argv[2:]
        print(json.dumps(answer(way, name, Path(folder), int(threads), realtime == "1")))
    else:
        main()
