"""Registered workloads: a key has the name of the function that makes the tensors, and its arguments.

@register_workload
def matmul(M, N, K): … return [A, B, C]

make_workload_key(matmul, (128, 128, 128))      # '["matmul", 128, 128, 128]'
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from ..ir.errors import near_matches
from ..ir.module import IRModule
from ..ir.serialize import load_json, save_json
from ..te.create_prim_func import create_prim_func
from ..te.tensor import Tensor
from .utils import decode_workload_key, deserialize_args, get_func_name, serialize_args

# By name: a function from arguments to tensors, the tensors themselves, a program or a ComputeDAG.
WORKLOAD_FUNC_REGISTRY: dict[str, Any] = {}


def register_workload(func_name: Any, f: Callable[..., Any] | None = None, override: bool = False) -> Any:
    """Register a function that returns the tensors of a program: as a decorator, or with a name and a function."""
    if callable(func_name):
        f, func_name = func_name, get_func_name(func_name)
    if not isinstance(func_name, str):
        raise ValueError(f"a workload is registered by a name, not by {func_name!r}")

    def register(func: Callable[..., Any]) -> Callable[..., Any]:
        if func_name in WORKLOAD_FUNC_REGISTRY and not override:
            raise RuntimeError(
                f"{func_name} has been registered already; register_workload(…, override=True) replaces it"
            )
        WORKLOAD_FUNC_REGISTRY[func_name] = func
        return func

    return register(f) if f is not None else register


def register_workload_tensors(workload_key: str, tensors: Sequence[Tensor], override: bool = True) -> str:
    """Register tensors under a whole key, which includes their shapes. Returns the key."""
    if workload_key in WORKLOAD_FUNC_REGISTRY and not override:
        raise RuntimeError(f"{workload_key} has been registered already; override=True replaces it")
    WORKLOAD_FUNC_REGISTRY[workload_key] = list(tensors)
    return workload_key


def workload_func_name(workload_key: str) -> str:
    """The name in a key; the key itself if it has another form."""
    name, _ = decode_workload_key(workload_key)
    return workload_key if name is None else name


def is_registered(workload_key: str) -> bool:
    """Whether the workload of a key is registered."""
    return _entry(workload_key) in WORKLOAD_FUNC_REGISTRY


def _entry(workload_key: str) -> str:
    """Where the workload of a key is registered: tensors and programs by the key, functions by their names."""
    return workload_key if workload_key in WORKLOAD_FUNC_REGISTRY else workload_func_name(workload_key)


def make_workload_key(func: str | Callable[..., Any], args: Sequence[Any]) -> str:
    """The key of a registered function (or its name) with arguments."""
    name = func if isinstance(func, str) else get_func_name(func) if callable(func) else None
    if name is None:
        raise ValueError(f"a workload is a function or the name of one, not {func!r}")
    if name not in WORKLOAD_FUNC_REGISTRY:
        raise ValueError(
            f"{name} is not registered; put @auto_scheduler.register_workload above it"
            + near_matches(name, WORKLOAD_FUNC_REGISTRY)
        )
    return json.dumps([name, *serialize_args(args)])


def workload_key_to_tensors(workload_key: str) -> Any:
    """The tensors of a key; the program itself if it came from a file or a model."""
    _, args = decode_workload_key(workload_key)
    found = WORKLOAD_FUNC_REGISTRY.get(_entry(workload_key))
    if found is None:
        raise ValueError(
            f"the program of {workload_key} is not known here: register its function, or give func= or compute_dag="
        )
    if not callable(found):
        return list(found) if isinstance(found, (list, tuple)) else found
    return found(*deserialize_args(args or ()))


def serialize_workload_registry_entry(workload_key: str) -> tuple[str, Any]:
    """The registered workload of a key, to send to another process: a function, or the JSON of a program."""
    name = _entry(workload_key)
    if name not in WORKLOAD_FUNC_REGISTRY:
        raise RuntimeError(f"there is no workload {name}; register it first")
    found = WORKLOAD_FUNC_REGISTRY[name]
    if callable(found):
        return name, found
    if isinstance(found, (list, tuple)):
        return name, save_json(IRModule({"main": create_prim_func(list(found))}))
    return name, save_json(getattr(found, "mod", found))


def deserialize_workload_registry_entry(data: tuple[str, Any]) -> None:
    """Register a workload from another process, unless its name is registered."""
    name, value = data
    if name not in WORKLOAD_FUNC_REGISTRY:
        WORKLOAD_FUNC_REGISTRY[name] = load_json(value) if isinstance(value, str) else value
