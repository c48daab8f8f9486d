"""Small helpers under their classic names."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from ..ir.serialize import read_json
from ..rpc.base import RPCError
from ..rpc.client import connect_tracker, request_remote
from ..tune.arguments import deserialize_args, get_const_int, get_const_tuple, serialize_args

__all__ = [
    "array_mean",
    "calc_workload_dis_factor",
    "check_remote",
    "decode_workload_key",
    "deserialize_args",
    "get_const_int",
    "get_const_tuple",
    "get_func_name",
    "list_to_tuple",
    "request_remote",
    "serialize_args",
    "to_str_round",
]


def get_func_name(func: Callable[..., Any]) -> str:
    """The name under which a function is registered."""
    return str(getattr(func, "func_name", None) or func.__qualname__)


def list_to_tuple(x: Any) -> Any:
    """Lists as tuples, recursively."""
    return tuple(list_to_tuple(y) if isinstance(y, (list, tuple)) else y for y in x)


def decode_workload_key(workload_key: str) -> tuple[str | None, tuple[Any, ...] | None]:
    """The name and the arguments of a key; (None, None) if it has another form."""
    try:
        data = read_json(workload_key, "the key", ValueError)
    except ValueError:
        return None, None
    if not isinstance(data, list) or not data or not isinstance(data[0], str):
        return None, None
    return data[0], list_to_tuple(data[1:])


def calc_workload_dis_factor(
    target_workload_pair: tuple[Any, Sequence[Any]], source_workload_pair: tuple[Any, Sequence[Any]]
) -> float:
    """The ratio of the sizes of one workload to those of another; infinite if they are not comparable.

    Names and arguments that are not sizes must be equal, and sizes must be multiples.
    """
    name, sizes = target_workload_pair
    other, others = source_workload_pair
    mine, theirs = _flat(sizes), _flat(others)
    if name != other or len(mine) != len(theirs):
        return math.inf
    factor = 1.0
    for a, b in zip(mine, theirs, strict=True):
        if a == b:
            continue
        if not isinstance(a, int) or not isinstance(b, int) or not a or not b or a % b:
            return math.inf
        factor *= a // b
    return factor


def _flat(x: Any) -> list[Any]:
    return [v for y in x for v in _flat(y)] if isinstance(x, (list, tuple)) else [x]


def array_mean(arr: Sequence[Any]) -> float:
    """The mean of numbers."""
    return sum(float(x) for x in arr) / len(arr)


def to_str_round(x: Any, decimal: int = 6) -> str:
    """A number, or a container of numbers, as text with `decimal` digits after the point."""
    if isinstance(x, str):
        return x
    if isinstance(x, (list, tuple)) or hasattr(x, "shape"):
        return f"[{', '.join(to_str_round(y, decimal) for y in x)}]"
    if isinstance(x, dict):
        return str({k: to_str_round(v) for k, v in x.items()})
    return str(x) if isinstance(x, int) else f"{float(x):.{decimal}f}"


def check_remote(
    device_key: str = "",
    host: str | None = None,
    port: int | None = None,
    priority: int = 100,
    timeout: float = 10,
) -> bool:
    """Whether the tracker at `host` and `port` has a server of a key; `priority` and `timeout` change nothing."""
    try:
        session = connect_tracker(host or "127.0.0.1", int(port or 9190))
    except RPCError:
        return False
    try:
        return any(server["key"] == f"server:{device_key}" for server in session.summary()["server_info"])
    finally:
        session.close()
