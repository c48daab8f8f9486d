"""The peaks of a device, measured: bytes of memory and arithmetic operations in a second, by type and vector length.

    bandwidth    for each item g:  y[g] = product over k of x[g + k * stride]
    arithmetic   for each item g:  a = a * b + b, many times, in registers

An item is a thread of a GPU, and an element of a parallel loop on a CPU, where a core has several independent chains.
`remote` is a session of `tilewright.rpc`, or None for this machine. `tilewright.target.measure` finds the figures of
this machine's CPU, and `tilewright calibrate` those of its GPU, in the form that cost models read.
"""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import numpy as np

from .. import te
from ..compiler.build import build
from ..ir.expr import const
from ..rpc.client import connect
from ..runtime import ndarray
from ..runtime.devices import Device
from ..runtime.errors import TVMError
from ..target import Target
from ..tir.ir_builder import create

_LANES: Final = (1, 2, 4, 8, 16)
_TYPES: Final = ("float16", "float32", "float64", "int32")
_STEPS: Final = 32  # multiply-adds of a chain without a branch
_CHAINS: Final = 8  # of a core of a CPU: as many as its multiply-adds take to finish, on all of its ports
_log = logging.getLogger(__name__)


def measure_bandwidth_sum(
    total_item: int,
    item_per_thread: int,
    stride: int,
    base_type: str,
    bits: int,
    lanes: int,
    target: Any,
    target_host: Any,
    remote: Any,
    dev: Device,
    n_times: int,
) -> float:
    """GB/s at which `total_item` numbers are read and multiplied, by items of `item_per_thread` vectors at distances of
    `stride`; -1 if the device does not have the type."""
    target = Target(target, host=target_host)
    dtype, n, m = f"{base_type}{bits}", total_item // lanes, item_per_thread
    try:
        x, y, s = _bandwidth(n, m, stride, dtype, lanes, target)
        arrays = [np.ones((n, lanes), dtype), np.zeros((n // m, lanes), dtype)]
        seconds = _seconds(s, [x, y], arrays, target, remote, dev, n_times)
    except TVMError as error:
        return _not_there(f"{dtype}x{lanes}", error)
    return total_item * bits / 8 / 1e9 / seconds


def measure_bandwidth_all_types(
    total_item: int,
    item_per_thread: int,
    n_times: int,
    target: Any,
    target_host: Any,
    remote: Any,
    dev: Device,
    verbose: bool = True,
) -> list[list[Any]]:
    """The type and the GB/s of each vector length, at the better of two strides: neighbouring items read neighbouring
    vectors of a block, or of the whole array."""
    target = Target(target, host=target_host)
    result: list[list[Any]] = []
    for lanes in _LANES:
        strides = (_threads(target), total_item // (lanes * item_per_thread))
        speeds = [
            measure_bandwidth_sum(
                total_item, item_per_thread, s, "float", 32, lanes, target, None, remote, dev, n_times
            )
            for s in strides
        ]
        _tell(result, f"float32x{lanes}", max(speeds), "GBPS", verbose)
    return result


def measure_compute_mad(
    total_item: int,
    item_per_thread: int,
    base_type: str,
    bits: int,
    lanes: int,
    target: Any,
    target_host: Any,
    remote: Any,
    dev: Device,
    n_times: int,
) -> float:
    """Billions of operations in a second, with `item_per_thread` of them in each of `total_item` items; a multiply-add
    counts as two. -1 if the device does not have the type."""
    target = Target(target, host=target_host)
    n = total_item // 2 if bits >= 64 or lanes >= 16 else total_item
    dtype = f"{base_type}{bits}"
    steps = max(1, item_per_thread // (2 * lanes * _STEPS))
    shape = _items(n, target), 1 if target.is_gpu else _CHAINS, lanes
    try:
        y = te.extern(
            shape, [], lambda _, outs: _multiply_adds(outs[0], steps, target), name="y", dtype=dtype
        )
        kernel = te.create_schedule(y.op)
        seconds = _seconds(kernel, [y], [np.full(shape, 0.5, dtype)], target, remote, dev, n_times)
    except TVMError as error:
        return _not_there(f"{dtype}x{lanes}", error)
    return 2 * _STEPS * steps * int(np.prod(shape)) / 1e9 / seconds


def measure_compute_all_types(
    total_item: int,
    item_per_thread: int,
    n_times: int,
    target: Any,
    target_host: Any,
    remote: Any,
    dev: Device,
    verbose: bool = True,
) -> list[list[Any]]:
    """The type and the billions of operations in a second of each vector length, for the best of three lengths of the
    chains."""
    target = Target(target, host=target_host)
    result: list[list[Any]] = []
    for dtype in _TYPES:
        base, bits = dtype.rstrip("0123456789"), int(dtype.lstrip("floatin"))
        for lanes in _LANES:
            speeds = [
                measure_compute_mad(total_item, each, base, bits, lanes, target, None, remote, dev, n_times)
                for each in (item_per_thread // 2, item_per_thread, item_per_thread * 2)
            ]
            unit = "GFLOPS" if base == "float" else "GIOPS"
            _tell(result, f"{dtype}x{lanes}", max(speeds), unit, verbose)
    return result


def measure_peak_all(target: Any, target_host: Any, host: str, port: int) -> None:
    """Measure all peaks of the device of an RPC server, and log them."""
    target, n_times = Target(target, host=target_host), 20
    with closing(connect(host, port)) as remote:
        dev = remote.device(target.kind.name)
        about = (n_times, target, None, remote, dev)
        _log.info("memory bandwidth of %s", target)
        measure_bandwidth_all_types(1 << 25, 32, *about)
        _log.info("peak arithmetic of %s", target)
        measure_compute_all_types(1 << 21, 4096, *about)


# ---------------------------------------------------------------------------- kernels
def _bandwidth(n: int, m: int, stride: int, dtype: str, lanes: int, target: Target) -> tuple[Any, Any, Any]:
    """The tensors and the schedule of products over vectors at distances."""
    x = te.placeholder((n, lanes), dtype, name="x")
    k = te.reduce_axis((0, m), name="k")
    product = te.comm_reducer(lambda a, b: a * b, lambda t: const(1, t), name="product")
    y = te.compute(
        (n // m, lanes),
        lambda i, v: product(x[i // stride * stride * m + i % stride + k * stride, v], axis=k),
        name="y",
    )
    s = te.create_schedule(y.op)
    kept = s.cache_write(y, "local" if target.is_gpu else "global")
    outer, inner = s[y].split(y.op.axis[0], _threads(target))
    if target.is_gpu:
        s[y].bind(outer, te.thread_axis("blockIdx.x"))
        s[y].bind(inner, te.thread_axis("threadIdx.x"))
    else:
        s[y].parallel(outer)
    s[kept].compute_at(s[y], inner)
    s[kept].reorder(s[kept].op.reduce_axis[0], s[kept].op.axis[1])
    s[kept].vectorize(s[kept].op.axis[1])
    s[y].vectorize(y.op.axis[1])
    return x, y, s


def _multiply_adds(buffer: Any, steps: int, target: Target) -> Any:
    """The loops of items whose chains multiply and add `steps * _STEPS` times; the numbers settle at 1."""
    ib = create()
    out = ib.buffer_ptr(buffer)
    items, chains, lanes = (int(size) for size in buffer.shape)
    threads = min(items, _threads(target))
    with ib.new_scope():
        if target.is_gpu:
            block, thread = te.thread_axis("blockIdx.x"), te.thread_axis("threadIdx.x")
            ib.scope_attr(block, "thread_extent", items // threads)
            ib.scope_attr(thread, "thread_extent", threads)
            _chain(ib, out, block.var * threads + thread.var, (chains, lanes), steps)
        else:
            with ib.for_range(0, items, "item", kind="parallel") as item:
                _chain(ib, out, item, (chains, lanes), steps)
    return ib.get()


def _chain(ib: Any, out: Any, item: Any, shape: tuple[int, int], steps: int) -> None:
    a, b = (ib.allocate(out.dtype, shape, name, scope="local") for name in "ab")

    def each(update: Callable[[Any, Any], None]) -> None:
        with (
            ib.for_range(0, shape[0], "c", kind="unroll") as c,
            ib.for_range(0, shape[1], "v", kind="vectorize") as v,
        ):
            update(c, v)

    def load(c: Any, v: Any) -> None:
        a[c, v] = out[item, c, v]
        b[c, v] = out[item, c, v]

    def multiply_add(c: Any, v: Any) -> None:
        a[c, v] = a[c, v] * b[c, v] + b[c, v]

    def store(c: Any, v: Any) -> None:
        out[item, c, v] = a[c, v]

    each(load)
    with ib.for_range(0, steps, "step"), ib.for_range(0, _STEPS, "again", kind="unroll"):
        each(multiply_add)
    each(store)


def _threads(target: Target) -> int:
    return target.max_num_threads if target.is_gpu else 256


def _items(n: int, target: Target) -> int:
    """The items of `n` numbers: whole blocks of a GPU, or a few for each core."""
    if target.is_gpu:
        threads = _threads(target)
        return max(1, n // threads) * threads
    return max(1, min(n, 4 * target.num_cores))


# ---------------------------------------------------------------------------- measurement
def _seconds(
    s: Any,
    tensors: Sequence[Any],
    arrays: Sequence[Any],
    target: Target,
    remote: Any,
    dev: Device,
    n_times: int,
) -> float:
    """The mean time of a kernel, here or in a session."""
    module: Any = build(s, list(tensors), target=target)
    if remote is not None:
        with tempfile.TemporaryDirectory(prefix="tilewright-peak-") as folder:
            library = str(Path(folder) / "peak.tar")
            module.export_library(library)
            remote.upload(library)
            module = remote.load_module("peak.tar")
    held = [ndarray.array(a, dev) for a in arrays]
    return float(module.time_evaluator(module.entry_name, dev, number=n_times)(*held).mean)


def _not_there(what: str, error: TVMError) -> float:
    _log.debug("%s cannot be measured: %s", what, error)
    return -1.0


def _tell(result: list[list[Any]], name: str, speed: float, unit: str, verbose: bool) -> None:
    result.append([name, speed])
    if verbose:
        _log.info("%-10s %.2f %s", name, speed, unit)
