"""Peers of bench/tuning.py beside those of the other benchmarks: tilewright with what tuning has recorded.

`$TILEWRIGHT_BENCH_RECORDS` is the database, `$TILEWRIGHT_BENCH_MACHINE` the fingerprint of the machine that its records
are of: that of a process that may use all cores, which those that are timed may not. The protocol is that of workers.py
and model_workers.py.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

import peers
from peers import Prepared
from workers import Stage, serve
from workloads import Workload

SAME = "the zero-trial schedule was the best"
RECORDS, MACHINE = "TILEWRIGHT_BENCH_RECORDS", "TILEWRIGHT_BENCH_MACHINE"


def share(records: str) -> None:
    """Tell the processes of the peers where the records are."""
    from tilewright.tune.measure.machines import fingerprint

    os.environ[RECORDS], os.environ[MACHINE] = records, fingerprint()


def tuned(w: Workload, x: dict[str, Any], threads: int, figures: str) -> Prepared | None:
    """A workload as its record says; a note tells where there is none."""
    from tilewright.tune.records.history import History

    with History(os.environ[RECORDS], machine=os.environ[MACHINE]) as history:
        made = peers.tilewright(w, x, threads, figures)
    if made is None:
        return None
    if not history.used:
        return made._replace(note="there is no record of it")
    same = all(record.decisions is None for record in history.used.values())
    return made._replace(note=SAME) if same else made


def tuned_model(m: Any, folder: Path, x: dict[str, Any], threads: int) -> Any:
    """A model with all kernels as their records say."""
    from model_workers import Made

    import tilewright as tvm
    from tilewright import relay
    from tilewright.contrib import graph_executor
    from tilewright.tune.records.history import History

    mod, params = relay.frontend.from_onnx(str(folder / f"{m.name}.onnx"))
    start = time.perf_counter()
    level = tvm.transform.PassContext(opt_level=3)  # that of the tasks
    with level, History(os.environ[RECORDS], machine=os.environ[MACHINE]) as history:
        lib = relay.build(mod, target=f"llvm -num-cores={threads}", params=params)
    built = time.perf_counter() - start
    executor = graph_executor.GraphModule(lib["default"](tvm.cpu(0)))
    for name, value in x.items():
        executor.set_input(name, value)
    return Made(Prepared(executor.run, lambda: executor.get_output(0).numpy(), history.summary()), built)


class Sides(Stage):
    """The tuned and the zero-trial schedule in one process, each made ready several times.

    The same schedule is some percent faster or slower from process to process, and from one array to another: more than
    what tuning may change.
    """

    COPIES = 3

    def __init__(self, peer: str, threads: int, figures: str, realtime: bool) -> None:
        super().__init__(peer, threads, figures, realtime)
        self.sides: dict[str, list[Stage]] = {}

    def prepare(self, workload: str, folder: str, ms: float, side: str = "") -> dict[str, Any]:
        stages = [Stage(side, self.threads, self.figures, self.realtime) for _ in range(self.COPIES)]
        self.sides[side] = stages
        told = [stage.prepare(workload, folder, ms) for stage in stages]
        return {**told[0], "error": max(t["error"] for t in told)} if "error" in told[0] else told[0]

    def sample(self, side: str = "") -> dict[str, Any]:
        stages = self.sides[side]
        stages.append(stages.pop(0))  # another at each time
        return stages[-1].sample()


def main() -> None:
    stage: type[Stage] = Sides
    if sys.argv[1].startswith("model:"):
        import model_workers

        model_workers.MODEL_PEERS["tuned"] = tuned_model
        stage = model_workers.ModelStage
    else:
        peers.PEERS["tuned"] = tuned
    name = sys.argv[1].rpartition(":")[2]
    serve(name, int(sys.argv[2]), sys.argv[3], sys.argv[4] == "1", stage)


if __name__ == "__main__":
    main()
