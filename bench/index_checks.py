"""What the checks of indices cost: models with `config.data_check` "check" beside the same with "clamp".

    python bench/index_checks.py                            on one thread of this processor
    python bench/index_checks.py --operators scatter,take   those with one of these texts in their name
    python bench/index_checks.py --target cuda --rounds 51  on a GPU, or `opencl`

On a CPU both read and write the same memory: where arrays lie makes a difference of several percent. Both give one
sample in each round, in alternating order, so that drift of the machine hits both alike. The ratio is the median over
the rounds of the time with checks over the time without: 1.02 is two percent slower. Beside it stands what the same
takes of two programs without checks, which is how far ratios of this machine can be trusted.
"""

from __future__ import annotations

import argparse
import os
import statistics
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from rich import box
from rich.console import Console
from rich.table import Table

Case = tuple[Any, dict[str, Any]]  # an expression, and its inputs
_SAMPLE = 0.005  # seconds of a sample, at least


def cases() -> dict[str, Callable[[], Case]]:
    """The operators, with shapes as models have them."""
    from tilewright import relay

    rng = np.random.default_rng(0)

    def data(*shape: int) -> Any:
        return rng.standard_normal(shape).astype("float32")

    def indices(n: int, *shape: int, low: int | None = None) -> Any:
        return rng.integers(-n if low is None else low, n, shape)

    def case(make: Callable[..., Any], **given: Any) -> Case:
        held = [relay.var(name, shape=v.shape, dtype=str(v.dtype)) for name, v in given.items()]
        return make(*held), given

    def take(rows: int, width: int, *shape: int, dtype: str = "int64") -> Case:
        x = data(rows, width) if width else data(rows)
        return case(
            lambda x, i: relay.take(x, i, axis=0, mode="fast"), x=x, i=indices(rows, *shape).astype(dtype)
        )

    def nll_loss(rows: int, classes: int) -> Case:
        return case(
            lambda x, t, w: relay.nn.nll_loss(x, t, w, "mean"),
            x=data(rows, classes),
            t=indices(classes, rows, low=0),
            w=np.ones(classes, "float32"),
        )

    def cross_entropy(rows: int, classes: int) -> Case:
        return case(
            lambda x, t, w: relay.nn.nll_loss(relay.nn.log_softmax(x), t, w, "mean"),
            x=data(rows, classes),
            t=indices(classes, rows, low=0),
            w=np.ones(classes, "float32"),
        )

    def scatter(mode: str, axis: int = 0) -> Case:
        return case(
            lambda x, i, u: relay.scatter_elements(x, i, u, axis, mode),
            x=data(1000, 256),
            i=indices(1000 if axis == 0 else 256, 1000, 256),
            u=data(1000, 256),
        )

    def sparse_dense(rows: int, size: int, part: float) -> Case:
        count = rng.multinomial(int(part * size * size), np.full(size, 1 / size))
        return case(
            lambda x, v, i, p: relay.nn.sparse_dense(x, (v, i, p)),
            x=data(rows, size),
            v=data(int(count.sum())),
            i=indices(size, int(count.sum()), low=0).astype("int32"),
            p=np.concatenate([[0], np.cumsum(count)]).astype("int32"),
        )

    return {
        "nn.sparse_dense 16x1024 by 1024x1024, 5 %": lambda: sparse_dense(16, 1024, 0.05),
        "nn.sparse_dense 4x512 by 512x512, 10 %": lambda: sparse_dense(4, 512, 0.1),
        "embedding (take) 30522x768, 8x128 ids": lambda: take(30522, 768, 8, 128),
        "embedding (take) 50000x16, 4096 ids": lambda: take(50000, 16, 4096),
        "embedding (take) 50000x8, 4096 ids": lambda: take(50000, 8, 4096),
        "take 65536x1, 2^18 ids": lambda: take(65536, 1, 1 << 18),
        "take 65536, 2^18 ids": lambda: take(65536, 0, 1 << 18),
        "take 65536, 2^18 ids of int32": lambda: take(65536, 0, 1 << 18, dtype="int32"),
        "take 2000x16, 4096 ids of int16": lambda: take(2000, 16, 4096, dtype="int16"),
        "take 2000, 4096 ids": lambda: take(2000, 0, 4096),
        "take 256x1000 along axis 1, 500 ids": lambda: case(
            lambda x, i: relay.take(x, i, axis=1, mode="fast"), x=data(256, 1000), i=indices(1000, 500)
        ),
        "gather 1000x256 along axis 0": lambda: case(
            lambda x, i: relay.gather(x, 0, i), x=data(1000, 256), i=indices(1000, 1000, 256)
        ),
        "gather 256x1000 along axis 1": lambda: case(
            lambda x, i: relay.gather(x, 1, i), x=data(256, 1000), i=indices(1000, 256, 1000)
        ),
        "gather_nd 512x512, 2^16 points": lambda: case(
            relay.gather_nd, x=data(512, 512), i=indices(512, 2, 1 << 16)
        ),
        "gather_nd 512x512, 2048 rows": lambda: case(
            relay.gather_nd, x=data(512, 512), i=indices(512, 1, 2048)
        ),
        "adv_index 512x512, 2^16 points": lambda: case(
            lambda x, i, j: relay.adv_index([x, i, j]),
            x=data(512, 512),
            i=indices(512, 1 << 16),
            j=indices(512, 1 << 16),
        ),
        "scatter_elements 1000x256": lambda: scatter("update"),
        "scatter_elements 1000x256, add": lambda: scatter("add"),
        "scatter_elements 1000x256 along axis 1, add": lambda: scatter("add", 1),
        "scatter_nd 512x512, 2^16 points": lambda: case(
            relay.scatter_nd, x=data(512, 512), i=indices(512, 2, 1 << 16), u=data(1 << 16)
        ),
        "scatter_nd 4096x256, 512 rows": lambda: case(
            relay.scatter_nd, x=data(4096, 256), i=indices(4096, 1, 512), u=data(512, 256)
        ),
        "scatter_nd 4096x256, 512 rows, add": lambda: case(
            lambda x, i, u: relay.scatter_nd(x, i, u, "add"),
            x=data(4096, 256),
            i=indices(4096, 1, 512),
            u=data(512, 256),
        ),
        "segment_sum 4096x64, 512 segments": lambda: case(
            lambda x, i: relay.segment_sum(x, i, num_segments=512),
            x=data(4096, 64),
            i=np.sort(indices(512, 4096, low=0)),
        ),
        "sparse_to_dense 512x512, 2^14 points": lambda: case(
            lambda i, v: relay.sparse_to_dense(i, [512, 512], v, 0.0),
            i=indices(512, 1 << 14, 2, low=0),
            v=data(1 << 14),
        ),
        "invert_permutation 65536": lambda: case(relay.invert_permutation, p=rng.permutation(65536)),
        "nll_loss 1024x1000": lambda: nll_loss(1024, 1000),
        "nll_loss 2^16x10": lambda: nll_loss(1 << 16, 10),
        "log_softmax, nll_loss 1024x1000": lambda: cross_entropy(1024, 1000),
        "log_softmax, nll_loss 2^14x10": lambda: cross_entropy(1 << 14, 10),
    }


def executor(expr: Any, given: dict[str, Any], mode: str, target: str, device: Any) -> Any:
    """The model with its inputs, run once."""
    import tilewright as tvm
    from tilewright import config, relay
    from tilewright.contrib import graph_executor

    with config.using(data_check=mode), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        lib = relay.build(tvm.IRModule.from_expr(expr), target)
    made = graph_executor.GraphModule(lib["default"](device))
    made.run(**given)
    return made


def share(executors: list[Any], given: dict[str, Any], device: Any) -> None:
    """Let executors on a CPU read and write the same memory."""
    import tilewright as tvm

    inputs = {name: tvm.nd.array(value, device) for name, value in given.items()}
    result = executors[0].get_output(0)
    for one in executors:
        one.set_input_zero_copy(**inputs)
        one.set_output_zero_copy(0, result)


def ratio(pair: list[Any], device: Any, number: int, rounds: int) -> tuple[float, float]:
    """The median of the ratios of two executors' times, and the median time of the second."""
    ratios, times = [], []
    for turn in range(rounds):
        took = [0.0, 0.0]
        for k in (0, 1) if turn % 2 else (1, 0):
            took[k] = pair[k].benchmark(device, number=number, repeat=1).median
        ratios.append(took[0] / took[1])
        times.append(took[1])
    return statistics.median(ratios), statistics.median(times)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--operators", default="", help="texts of which one is in the name, with commas between"
    )
    parser.add_argument("--rounds", type=int, default=41)
    parser.add_argument("--target", default="llvm -num-cores=1")
    options = parser.parse_args()
    os.environ["TILEWRIGHT_NUM_THREADS"] = "1"
    import tilewright as tvm

    device = tvm.device(options.target)
    if device.device_type == 1 and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    table = Table(
        box=box.SIMPLE, title=f"indices checked over not checked: {options.target}, {options.rounds} rounds"
    )
    for name in ("operator", "not checked, us", "ratio", "of two not checked"):
        table.add_column(name, justify="left" if name == "operator" else "right")
    wanted = options.operators.split(",")
    for name, make in cases().items():
        if not any(w.strip() in name for w in wanted):
            continue
        expr, given = make()
        check, clamp, again = (
            executor(expr, given, mode, options.target, device) for mode in ("check", "clamp", "clamp")
        )
        if device.device_type == 1:
            share([check, clamp, again], given, device)
        once = clamp.benchmark(device, number=3, repeat=3).median
        number = max(1, round(_SAMPLE / once))
        found, seconds = ratio([check, clamp], device, number, options.rounds)
        noise, _ = ratio([again, clamp], device, number, options.rounds)
        table.add_row(name, f"{seconds * 1e6:.1f}", f"{found:.3f}", f"{noise:.3f}")
    Console().print(table)


if __name__ == "__main__":
    main()
