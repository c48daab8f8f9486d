"""Functions of libraries that programs call by name: products by BLAS, random numbers, sorting, traces.

    te.extern((n, m), [A, B], lambda ins, outs: tir.call_packed("tvm.contrib.cblas.matmul", *ins, *outs, False, True))

Matrix products go to the BLAS library that NumPy was built with.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from ..runtime.registry import get_global_func, register_func
from ..runtime.threads import config_threadpool, num_threads

PREFIX: Final = "tvm.contrib."


def _host(array: Any, name: str) -> Any:
    """The memory of an argument as a NumPy array."""
    found = getattr(array, "_host", None)
    if found is None:
        raise ValueError(f"{PREFIX}{name} runs on the CPU, and an argument is on {array.device}")
    return found


# ---------------------------------------------------------------------------- products
def _product(name: str, dims: int) -> Any:
    def product(
        a: Any,
        b: Any,
        c: Any,
        transa: Any = False,
        transb: Any = False,
        alpha: float = 1.0,
        beta: float = 0.0,
    ) -> None:
        """`c = alpha * a @ b + beta * c`, with operands transposed where it says so."""
        x, y, out = (_host(t, name) for t in (a, b, c))
        for what, t in (("a", x), ("b", y), ("c", out)):
            if t.ndim != dims:
                raise ValueError(f"{PREFIX}{name}: {what} has {t.ndim} dimensions and must have {dims}")
        x = x.swapaxes(-1, -2) if transa else x
        y = y.swapaxes(-1, -2) if transb else y
        wide = out.dtype
        x, y = x.astype(wide, copy=False), y.astype(wide, copy=False)
        if alpha == 1.0 and beta == 0.0:
            np.matmul(x, y, out=out)
        else:
            out[...] = alpha * np.matmul(x, y) + beta * out

    return product


for _library in ("cblas", "mkl", "dnnl"):
    for _name, _dims in (("matmul", 2), ("batch_matmul", 3), ("batch_matmul_iterative", 3)):
        register_func(f"{PREFIX}{_library}.{_name}", _product(f"{_library}.{_name}", _dims), override=True)
register_func(f"{PREFIX}mkl.matmul_u8s8s32", _product("mkl.matmul_u8s8s32", 2), override=True)

# ---------------------------------------------------------------------------- random numbers
_state: Final[list[np.random.Generator]] = [np.random.default_rng()]


@register_func(f"{PREFIX}random.seed", override=True)
def seed(value: int) -> None:
    """Start the random numbers anew."""
    _state[0] = np.random.default_rng(int(value))


@register_func(f"{PREFIX}random.randint", override=True)
def randint(low: int, high: int, out: Any) -> None:
    """Fill an array with integers from `low` up to `high`, which is excluded."""
    held = _host(out, "random.randint")
    held[...] = _state[0].integers(int(low), int(high), held.shape, dtype=held.dtype)


@register_func(f"{PREFIX}random.uniform", override=True)
def uniform(low: float, high: float, out: Any) -> None:
    """Fill an array with numbers from `low` up to `high`, which is excluded."""
    held = _host(out, "random.uniform")
    held[...] = _state[0].uniform(low, high, held.shape)


@register_func(f"{PREFIX}random.normal", override=True)
def normal(loc: float, scale: float, out: Any) -> None:
    """Fill an array with numbers around `loc` with the standard deviation `scale`."""
    held = _host(out, "random.normal")
    held[...] = _state[0].normal(loc, scale, held.shape)


@register_func(f"{PREFIX}random.random_fill", override=True)
def random_fill(out: Any) -> None:
    """Fill an array with random values that fit any data type."""
    held = np.empty(out.shape, np.float32)
    held[...] = _state[0].uniform(1, 10, held.shape)
    out.copyfrom(held.astype(str(out.dtype)))


# ---------------------------------------------------------------------------- sorting
def _order(values: Any, axis: int, ascending: Any) -> Any:
    """The indices that sort an axis; equal elements keep their order."""
    if ascending:
        return np.argsort(values, axis=axis, kind="stable")
    flipped = np.flip(values, axis)
    return values.shape[axis] - 1 - np.flip(np.argsort(flipped, axis=axis, kind="stable"), axis)


@register_func(f"{PREFIX}sort.argsort", override=True)
def argsort(data: Any, out: Any, axis: int = -1, is_ascend: Any = True) -> None:
    """Fill an array with the indices that sort an axis of `data`."""
    _host(out, "sort.argsort")[...] = _order(_host(data, "sort.argsort"), int(axis), is_ascend)


@register_func(f"{PREFIX}sort.argsort_nms", override=True)
def argsort_nms(data: Any, counts: Any, out: Any, axis: int = -1, is_ascend: Any = True) -> None:
    """As `argsort`, of the first so many elements of each row; the indices of the others stay as they are."""
    values, axis = _host(data, "sort.argsort_nms"), int(axis) % len(data.shape)
    rows, some = np.moveaxis(values, axis, -1), _host(counts, "sort.argsort_nms")
    made = np.broadcast_to(np.arange(rows.shape[-1]), rows.shape).copy()
    for at in np.ndindex(rows.shape[:-1]):
        count = min(max(int(some[at]), 0), rows.shape[-1])
        made[at][:count] = _order(rows[at][:count], 0, is_ascend)
    _host(out, "sort.argsort_nms")[...] = np.moveaxis(made, -1, axis)


@register_func(f"{PREFIX}sort.sort", override=True)
def sort(data: Any, out: Any, axis: int = -1, is_ascend: Any = True) -> None:
    """Fill an array with `data` sorted along an axis."""
    held = _host(data, "sort.sort")
    _host(out, "sort.sort")[...] = np.take_along_axis(held, _order(held, int(axis), is_ascend), int(axis))


@register_func(f"{PREFIX}sort.topk", override=True)
def topk(data: Any, *rest: Any) -> None:
    """Fill arrays with the greatest (or least) elements of an axis, with their indices, or both.

    After the outputs come k, the axis, which outputs there are ("both", "values", "indices"), and whether the least
    elements are meant.
    """
    outs = [x for x in rest if hasattr(x, "shape")]
    k, axis, kinds, ascending = rest[len(outs) :]
    held, axis = _host(data, "sort.topk"), int(axis)
    order = _order(held, axis, ascending)
    order = order if k < 1 else np.take(order, range(int(k)), axis)
    values = np.take_along_axis(held, order, axis)
    made = {"both": [values, order], "values": [values], "indices": [order]}[str(kinds)]
    for out, value in zip(outs, made, strict=True):
        _host(out, "sort.topk")[...] = value


# ---------------------------------------------------------------------------- traces
@register_func(f"{PREFIX}trace", override=True)
def trace(action: str, *args: Any) -> Any:
    """Show `args` to a function, and return what it gives for the last one; None stands for the value itself."""
    found = get_global_func(str(action))(*args)
    return args[-1] if found is None else found


@register_func("tvm.default_trace_action", override=True)
def print_values(*args: Any) -> None:
    """Print the values of a trace."""
    print(list(args))


# ---------------------------------------------------------------------------- threads
register_func("runtime.config_threadpool", config_threadpool)
register_func("runtime.NumThreads", num_threads)
