"""Measure candidates of many programs, for the cost model that ships with the package.

    python scripts/gather_records.py /tmp/records.db --seconds 60           go on for a minute
    python scripts/gather_records.py /tmp/records.db --only conv --trials 50
    python scripts/gather_records.py /tmp/records.db --train                 … and write the model from what there is

It goes on where it stopped: each program has a fixed sample of its space, drawn by chance from what the model of the
machine likes, from what it thinks bearable, and from all. The sizes are none of those of bench/workloads.py, so that
what is learned here is tried on others there.
"""

from __future__ import annotations

import argparse
import math
import platform
import time
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np

from tilewright import te, topi
from tilewright.tune.measure.machines import describe_machine
from tilewright.tune.measure.measurer import MeasureInput, MeasureOptions, Measurer, MeasureResult
from tilewright.tune.records.database import Database, Record
from tilewright.tune.search.cost_models import SHIPPED
from tilewright.tune.search.evolution import unique_rows
from tilewright.tune.search.pretrain import describe_model, samples_of, train_trees
from tilewright.tune.space import Sketches
from tilewright.tune.workload import Task, task_of

Make = Callable[[], tuple[list[Any], tuple[str, ...]]]
ONE, ALL_CORES = "llvm -num-cores=1", "llvm"
# The same machine as it would be without its widest vectors: its figures are features, and so tell the two apart.
NARROW = "llvm -mcpu=znver3 -num-cores=1"


_TRUST = 0.7  # what is best for programs that are left out of the training
_EFFORT = 1.0  # candidates with more than twice the code of the zero-trial schedule take long to build: none of them


# ---------------------------------------------------------------------------- programs
def matmul(m: int, k: int, n: int, right: str = "kn", constant: bool = False) -> Make:
    def make() -> tuple[list[Any], tuple[str, ...]]:
        A = te.placeholder((m, k), name="A")
        B = te.placeholder((k, n) if right == "kn" else (n, k), name="B")
        made = topi.matmul(A, B) if right == "kn" else topi.nn.dense(A, B)
        return [A, B, made], ("B",) if constant else ()

    return make


def dense(m: int, k: int, n: int) -> Make:
    """With a bias and a ReLU, the weights known."""

    def make() -> tuple[list[Any], tuple[str, ...]]:
        A, W = te.placeholder((m, k), name="A"), te.placeholder((n, k), name="W")
        bias = te.placeholder((n,), name="bias")
        return [A, W, bias, topi.nn.relu(topi.nn.dense(A, W, bias))], ("W", "bias")

    return make


def batched(b: int, m: int, k: int, n: int, turned: bool = True) -> Make:
    def make() -> tuple[list[Any], tuple[str, ...]]:
        A = te.placeholder((b, m, k), name="A")
        B = te.placeholder((b, n, k) if turned else (b, k, n), name="B")
        return [A, B, topi.nn.batch_matmul(A, B, transpose_b=turned)], ()

    return make


def conv(
    size: int, kernel: int, into: int, out: int, stride: int = 1, relu: bool = False, batch: int = 1
) -> Make:
    def make() -> tuple[list[Any], tuple[str, ...]]:
        X = te.placeholder((batch, into, size, size), name="X")
        W = te.placeholder((out, into, kernel, kernel), name="W")
        made = topi.nn.conv2d_nchw(X, W, stride, kernel // 2, 1)
        if not relu:
            return [X, W, made], ("W",)
        bias = te.placeholder((out, 1, 1), name="bias")
        return [X, W, bias, topi.nn.relu(topi.add(made, bias))], ("W", "bias")

    return make


def depthwise(size: int, kernel: int, channels: int, stride: int = 1) -> Make:
    def make() -> tuple[list[Any], tuple[str, ...]]:
        X = te.placeholder((1, channels, size, size), name="X")
        W = te.placeholder((channels, 1, kernel, kernel), name="W")
        return [X, W, topi.nn.depthwise_conv2d_nchw(X, W, stride, kernel // 2, 1)], ("W",)

    return make


def rows(kind: str, m: int, n: int) -> Make:
    def make() -> tuple[list[Any], tuple[str, ...]]:
        X = te.placeholder((m, n), name="X")
        if kind == "softmax":
            return [X, topi.nn.softmax(X)], ()
        if kind == "sum":
            return [X, topi.sum(X, axis=1)], ()
        G, B = te.placeholder((n,), name="G"), te.placeholder((n,), name="B")
        return [X, G, B, topi.nn.layer_norm(X, G, B, [1])], ()

    return make


def elementwise(n: int) -> Make:
    def make() -> tuple[list[Any], tuple[str, ...]]:
        X, Y = te.placeholder((n,), name="X"), te.placeholder((n,), name="Y")
        return [X, Y, topi.nn.relu(topi.add(topi.multiply(X, Y), X))], ()

    return make


PROGRAMS: dict[str, tuple[str, Make]] = {
    f"{name} [{target}]": (target, make)
    for name, targets, make in [
        ("matmul 96 cubed", (ONE, NARROW), matmul(96, 96, 96)),
        ("matmul 160 cubed", (ALL_CORES,), matmul(160, 160, 160)),
        ("matmul 224 cubed", (ONE, ALL_CORES, NARROW), matmul(224, 224, 224)),
        ("matmul 320 cubed", (ALL_CORES,), matmul(320, 320, 320)),
        ("matmul 448 cubed", (ONE, NARROW), matmul(448, 448, 448)),
        ("matmul 640 cubed", (ONE, ALL_CORES), matmul(640, 640, 640)),
        ("matmul 211x307x401", (ONE, ALL_CORES), matmul(211, 307, 401)),
        ("matmul 8x1024x1536", (ONE, ALL_CORES), matmul(8, 1024, 1536)),
        ("matmul 48x512x2048", (ONE,), matmul(48, 512, 2048)),
        ("matmul 300x40x700", (ALL_CORES, NARROW), matmul(300, 40, 700)),
        ("matmul 2x900x1300", (ONE,), matmul(2, 900, 1300)),
        ("matmul 1100x96x12", (ONE,), matmul(1100, 96, 12)),
        ("matmul 384x512x384 known", (ONE,), matmul(384, 512, 384, constant=True)),
        ("matmul 101x640x450 turned", (ONE, ALL_CORES), matmul(101, 640, 450, "nk")),
        ("dense 64x512x1000", (ONE, ALL_CORES), dense(64, 512, 1000)),
        ("dense 1x1280x1000", (ONE,), dense(1, 1280, 1000)),
        ("dense 200x384x1536", (ALL_CORES,), dense(200, 384, 1536)),
        ("batched 8x96x64x96", (ONE, ALL_CORES), batched(8, 96, 64, 96)),
        ("batched 16x50x32x50", (ONE,), batched(16, 50, 32, 50, False)),
        ("batched 6x197x64x197", (ALL_CORES,), batched(6, 197, 64, 197)),
        ("conv 3x3 48@40", (ONE, ALL_CORES, NARROW), conv(40, 3, 48, 48)),
        ("conv 3x3 96@20", (ONE, ALL_CORES), conv(20, 3, 96, 96)),
        ("conv 3x3 160@10", (ONE,), conv(10, 3, 160, 160)),
        ("conv 3x3 320@6", (ONE, ALL_CORES), conv(6, 3, 320, 320)),
        ("conv 3x3 relu 80@24", (ONE, ALL_CORES), conv(24, 3, 80, 80, relu=True)),
        ("conv 3x3/2 64->96@48", (ONE, ALL_CORES), conv(48, 3, 64, 96, 2)),
        ("conv 3x3/2 3->24@160", (ONE,), conv(160, 3, 3, 24, 2)),
        ("conv 5x5/2 3->48@128", (ALL_CORES,), conv(128, 5, 3, 48, 2)),
        ("conv 7x7/2 3->32@128", (ONE,), conv(128, 7, 3, 32, 2)),
        ("conv 5x5 40@23", (ONE,), conv(23, 5, 40, 40)),
        ("conv 1x1 96->192@32", (ONE, ALL_CORES, NARROW), conv(32, 1, 96, 192)),
        ("conv 1x1 384->96@20", (ONE, ALL_CORES), conv(20, 1, 384, 96)),
        ("conv 1x1 720->160@9", (ONE,), conv(9, 1, 720, 160)),
        ("conv 1x1 48->288@52", (ALL_CORES,), conv(52, 1, 48, 288)),
        ("conv 1x1/2 128->256@40", (ONE, ALL_CORES), conv(40, 1, 128, 256, 2)),
        ("conv 1x1 relu 240->64@18", (ONE,), conv(18, 1, 240, 64, relu=True)),
        ("conv 3x3 19->43@27", (ONE,), conv(27, 3, 19, 43)),
        ("depthwise 3x3 96@48", (ONE, ALL_CORES), depthwise(48, 3, 96)),
        ("depthwise 3x3/2 64@60", (ONE,), depthwise(60, 3, 64, 2)),
        ("depthwise 5x5 240@18", (ALL_CORES,), depthwise(18, 5, 240)),
        ("depthwise 3x3 576@10", (ONE,), depthwise(10, 3, 576)),
        ("softmax 200x800", (ONE, ALL_CORES), rows("softmax", 200, 800)),
        ("layernorm 196x768", (ONE, ALL_CORES), rows("layernorm", 196, 768)),
        ("sum 600x3000", (ALL_CORES,), rows("sum", 600, 3000)),
        ("elementwise 700k", (ONE, ALL_CORES), elementwise(700_000)),
        ("elementwise 30k", (ALL_CORES,), elementwise(30_000)),
    ]
    for target in targets
}  # fmt: skip


# ---------------------------------------------------------------------------- samples
def sample_of(space: Any, count: int, seed: int) -> Any:
    """The zero-trial schedule, then in turns: of the best hundredth by the model of the machine, of the better third,
    of all that are not long to build."""
    rng = np.random.default_rng(seed)
    drawn = space.sample(rng, 20_000)
    drawn = drawn[space.effort(drawn) < _EFFORT + space.effort(space.default[None])]
    drawn = unique_rows(np.concatenate([space.default[None], drawn]))
    order = np.argsort(space.seconds(drawn), kind="stable")
    parts = [order[: max(count, len(order) // 100)], order[: max(count, len(order) // 3)], order]
    queues = [list(rng.permutation(p)) for p in parts]
    chosen: dict[int, None] = {0: None}
    while len(chosen) < min(count, len(drawn)):
        for queue in queues:
            if queue:
                chosen[int(queue.pop())] = None
    return drawn[list(chosen)[:count]]


class Gatherer:
    """Measures what is missing of the samples, until the time is up."""

    def __init__(self, database: Database, trials: int, seconds: float) -> None:
        self.database, self.trials, self.end = database, trials, time.monotonic() + seconds
        self.measured = 0

    def gather(self, name: str, target: str, make: Make) -> bool:
        """Whether all of a program's sample is measured."""
        args, constants = make()
        task = task_of(args, target, constants)
        space = Sketches(task).space
        known = {str(r.decisions) for r in self.database.records(task) if space.rows(r.decisions) is not None}
        rows = sample_of(space, self.trials, zlib.crc32(name.encode()))
        inputs = [self._input(task, space, r) for r in rows]
        todo = [i for i in inputs if str(i.what) not in known]
        if len(known) >= 0.75 * len(inputs):
            return True
        with Measurer(MeasureOptions(run_limit=2.0)) as measurer:
            zero = math.inf

            def keep(i: int, inp: MeasureInput, result: MeasureResult) -> None:
                self.database.add(Record.of(inp, result, extra={"against": zero}), inp.task)
                self.measured += 1

            # all are measured against the zero-trial schedule
            zero = measurer.measure(inputs[:1], None)[0].time
            for start in range(0, len(todo), 8):
                if time.monotonic() > self.end:
                    return False
                measurer.measure(todo[start : start + 8], inputs[0], keep)
        return True

    @staticmethod
    def _input(task: Task, space: Any, rows: Any) -> MeasureInput:
        return MeasureInput.of(task, space.decisions(rows))


def train(database: Database) -> None:
    """Write the model that ships with the package."""
    SHIPPED.mkdir(exist_ok=True)
    path, samples = SHIPPED / f"{platform.machine()}.ubj", samples_of(database)
    train_trees(samples, trust=_TRUST).save(str(path))
    machine = describe_machine()
    describe_model(path, samples, f"{machine['cpu']} ({machine['llvm_cpu']}), {machine['cores']} cores")
    print(f"{path}: {path.stat().st_size} bytes")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("database")
    parser.add_argument("--seconds", type=float, default=0.0, help="how long to go on measuring")
    parser.add_argument("--trials", type=int, default=32, help="candidates of each program")
    parser.add_argument("--only", default="", help="programs with this text in their name")
    parser.add_argument("--train", action="store_true", help=f"write {SHIPPED.name}/ from the database")
    options = parser.parse_args()
    with Database(options.database) as database:
        gatherer = Gatherer(database, options.trials, options.seconds)
        done = 0
        for name, (target, make) in PROGRAMS.items():
            if options.only in name and time.monotonic() < gatherer.end:
                done += gatherer.gather(name, target, make)
        print(f"{gatherer.measured} measured, {done} of {len(PROGRAMS)} programs done")
        if options.train:
            train(database)


if __name__ == "__main__":
    main()
