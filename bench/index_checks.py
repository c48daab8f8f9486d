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


class Maker:
    """Random inputs, and expressions over them. Names of `dynamic` inputs have a first size known at run time only."""

    def __init__(self) -> None:
        self.rng = np.random.default_rng(0)

    def data(self, *shape: int) -> Any:
        return self.rng.standard_normal(shape).astype("float32")

    def indices(self, n: int, *shape: int, low: int | None = None) -> Any:
        return self.rng.integers(-n if low is None else low, n, shape)

    def case(self, make: Callable[..., Any], dynamic: str = "", **given: Any) -> Case:
        from tilewright import relay

        held = []
        for name, v in given.items():
            shape = (relay.Any(), *v.shape[1:]) if name == dynamic else v.shape
            held.append(relay.var(name, shape=shape, dtype=str(v.dtype)))
        return make(*held), given

    def take(self, rows: int, width: int, *shape: int, dtype: str = "int64", dynamic: str = "") -> Case:
        from tilewright import relay

        x = self.data(rows, width) if width else self.data(rows)
        ids = self.indices(rows, *shape).astype(dtype)
        return self.case(lambda x, i: relay.take(x, i, axis=0, mode="fast"), dynamic, x=x, i=ids)

    def nll_loss(self, rows: int, classes: int, of: Callable[[Any], Any] = lambda x: x) -> Case:
        from tilewright import relay

        return self.case(
            lambda x, t, w: relay.nn.nll_loss(of(x), t, w, "mean"),
            x=self.data(rows, classes),
            t=self.indices(classes, rows, low=0),
            w=np.ones(classes, "float32"),
        )

    def scatter(self, mode: str, axis: int = 0) -> Case:
        from tilewright import relay

        return self.case(
            lambda x, i, u: relay.scatter_elements(x, i, u, axis, mode),
            x=self.data(1000, 256),
            i=self.indices(1000 if axis == 0 else 256, 1000, 256),
            u=self.data(1000, 256),
        )

    def sparse_dense(self, rows: int, size: int, part: float) -> Case:
        from tilewright import relay

        count = self.rng.multinomial(int(part * size * size), np.full(size, 1 / size))
        return self.case(
            lambda x, v, i, p: relay.nn.sparse_dense(x, (v, i, p)),
            x=self.data(rows, size),
            v=self.data(int(count.sum())),
            i=self.indices(size, int(count.sum()), low=0).astype("int32"),
            p=np.concatenate([[0], np.cumsum(count)]).astype("int32"),
        )


def cases() -> dict[str, Callable[[], Case]]:
    """The operators, with shapes as models have them."""
    made = Maker()
    return {**_reads(made), **_writes(made), **_dynamic(made)}


def _dynamic(m: Maker) -> dict[str, Callable[[], Case]]:
    return {
        f"take of dynamic rows 30000x{width}, {count} ids": lambda w=width, n=count: m.take(
            30000, w, n, dynamic="x"
        )  # type: ignore[misc]
        for width, count in ((768, 1024), (64, 4096), (16, 4096), (16, 1 << 16))
    }


def _reads(m: Maker) -> dict[str, Callable[[], Case]]:
    from tilewright import relay

    return {
        "nn.sparse_dense 16x1024 by 1024x1024, 5 %": lambda: m.sparse_dense(16, 1024, 0.05),
        "nn.sparse_dense 4x512 by 512x512, 10 %": lambda: m.sparse_dense(4, 512, 0.1),
        "embedding (take) 30522x768, 8x128 ids": lambda: m.take(30522, 768, 8, 128),
        "embedding (take) 50000x16, 4096 ids": lambda: m.take(50000, 16, 4096),
        "embedding (take) 50000x8, 4096 ids": lambda: m.take(50000, 8, 4096),
        "take 65536x1, 2^18 ids": lambda: m.take(65536, 1, 1 << 18),
        "take 65536, 2^18 ids": lambda: m.take(65536, 0, 1 << 18),
        "take 65536, 2^18 ids of int32": lambda: m.take(65536, 0, 1 << 18, dtype="int32"),
        "take 2000x16, 4096 ids of int16": lambda: m.take(2000, 16, 4096, dtype="int16"),
        "take 2000, 4096 ids": lambda: m.take(2000, 0, 4096),
        "take 256x1000 along axis 1, 500 ids": lambda: m.case(
            lambda x, i: relay.take(x, i, axis=1, mode="fast"), x=m.data(256, 1000), i=m.indices(1000, 500)
        ),
        "gather 1000x256 along axis 0": lambda: m.case(
            lambda x, i: relay.gather(x, 0, i), x=m.data(1000, 256), i=m.indices(1000, 1000, 256)
        ),
        "gather 256x1000 along axis 1": lambda: m.case(
            lambda x, i: relay.gather(x, 1, i), x=m.data(256, 1000), i=m.indices(1000, 256, 1000)
        ),
        "gather_nd 512x512, 2^16 points": lambda: m.case(
            relay.gather_nd, x=m.data(512, 512), i=m.indices(512, 2, 1 << 16)
        ),
        "gather_nd 512x512, 2048 rows": lambda: m.case(
            relay.gather_nd, x=m.data(512, 512), i=m.indices(512, 1, 2048)
        ),
        "adv_index 512x512, 2^16 points": lambda: m.case(
            lambda x, i, j: relay.adv_index([x, i, j]),
            x=m.data(512, 512),
            i=m.indices(512, 1 << 16),
            j=m.indices(512, 1 << 16),
        ),
        "nll_loss 1024x1000": lambda: m.nll_loss(1024, 1000),
        "nll_loss 2^16x10": lambda: m.nll_loss(1 << 16, 10),
        "log_softmax, nll_loss 1024x1000": lambda: m.nll_loss(1024, 1000, relay.nn.log_softmax),
        "log_softmax, nll_loss 2^14x10": lambda: m.nll_loss(1 << 14, 10, relay.nn.log_softmax),
    }


def _writes(m: Maker) -> dict[str, Callable[[], Case]]:
    from tilewright import relay

    return {
        "scatter_elements 1000x256": lambda: m.scatter("update"),
        "scatter_elements 1000x256, add": lambda: m.scatter("add"),
        "scatter_elements 1000x256 along axis 1, add": lambda: m.scatter("add", 1),
        "scatter_nd 512x512, 2^16 points": lambda: m.case(
            relay.scatter_nd, x=m.data(512, 512), i=m.indices(512, 2, 1 << 16), u=m.data(1 << 16)
        ),
        "scatter_nd 4096x256, 512 rows": lambda: m.case(
            relay.scatter_nd, x=m.data(4096, 256), i=m.indices(4096, 1, 512), u=m.data(512, 256)
        ),
        "scatter_nd 4096x256, 512 rows, add": lambda: m.case(
            lambda x, i, u: relay.scatter_nd(x, i, u, "add"),
            x=m.data(4096, 256),
            i=m.indices(4096, 1, 512),
            u=m.data(512, 256),
        ),
        "segment_sum 4096x64, 512 segments": lambda: m.case(
            lambda x, i: relay.segment_sum(x, i, num_segments=512),
            x=m.data(4096, 64),
            i=np.sort(m.indices(512, 4096, low=0)),
        ),
        "sparse_to_dense 512x512, 2^14 points": lambda: m.case(
            lambda i, v: relay.sparse_to_dense(i, [512, 512], v, 0.0),
            i=m.indices(512, 1 << 14, 2, low=0),
            v=m.data(1 << 14),
        ),
        "invert_permutation 65536": lambda: m.case(relay.invert_permutation, p=m.rng.permutation(65536)),
    }


class InMachine:
    """A model with sizes known at run time only, in the virtual machine, with its inputs."""

    def __init__(self, made: Any, given: dict[str, Any], device: Any) -> None:
        import tilewright as tvm

        self.machine = tvm.runtime.vm.VirtualMachine(made, device)
        self.inputs = [tvm.nd.array(v, device) for v in given.values()]
        self.machine.invoke("main", *self.inputs)

    def benchmark(self, device: Any, number: int, repeat: int) -> Any:
        return self.machine.benchmark(device, *self.inputs, number=number, repeat=repeat)


def executor(expr: Any, given: dict[str, Any], mode: str, target: str, device: Any) -> Any:
    """The model with its inputs, run once."""
    import tilewright as tvm
    from tilewright import config, relay
    from tilewright.contrib import graph_executor

    with config.using(data_check=mode), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        mod = tvm.IRModule.from_expr(expr)
        if any(
            isinstance(d, relay.Any) for v in relay.analysis.free_vars(expr) for d in v.type_annotation.shape
        ):
            return InMachine(relay.vm.compile(mod, target), given, device)
        lib = relay.build(mod, target)
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
        if device.device_type == 1 and not isinstance(check, InMachine):
            share([check, clamp, again], given, device)
        once = clamp.benchmark(device, number=3, repeat=3).median
        number = max(1, round(_SAMPLE / once))
        found, seconds = ratio([check, clamp], device, number, options.rounds)
        noise, _ = ratio([again, clamp], device, number, options.rounds)
        table.add_row(name, f"{seconds * 1e6:.1f}", f"{found:.3f}", f"{noise:.3f}")
    Console().print(table)


if __name__ == "__main__":
    main()
