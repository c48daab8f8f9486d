"""`T`: what a loop program is written with.

Names that are not here (operators such as `T.exp`, data types such as `T.float32x4`) are made from the
registry of operators and the grammar of data types when they are first asked for.
"""

from __future__ import annotations

from typing import Any

from ..tir.script.function import macro, prim_func
from ..tir.script.namespace import (
    Assert,
    Buffer,
    Let,
    LetStmt,
    Range,
    all_names,
    alloc_buffer,
    allocate,
    allocate_const,
    attr,
    axis,
    block,
    block_attr,
    buffer_store,
    call_intrin,
    cast,
    comm_reducer,
    decl_buffer,
    env_thread,
    evaluate,
    func_attr,
    grid,
    handle,
    init,
    iter_var,
    launch_thread,
    lookup,
    match_buffer,
    max,
    meta_var,
    min,
    parallel,
    prefetch,
    reads,
    realize,
    reduce,
    serial,
    target,
    thread_binding,
    type_annotation,
    unroll,
    var,
    vectorized,
    where,
    writes,
)

__all__ = [
    "Assert",
    "Buffer",
    "Let",
    "LetStmt",
    "Range",
    "alloc_buffer",
    "allocate",
    "allocate_const",
    "attr",
    "axis",
    "block",
    "block_attr",
    "buffer_store",
    "call_intrin",
    "cast",
    "comm_reducer",
    "decl_buffer",
    "env_thread",
    "evaluate",
    "func_attr",
    "grid",
    "handle",
    "init",
    "iter_var",
    "launch_thread",
    "macro",
    "match_buffer",
    "max",
    "meta_var",
    "min",
    "parallel",
    "prefetch",
    "prim_func",
    "reads",
    "realize",
    "reduce",
    "serial",
    "target",
    "thread_binding",
    "type_annotation",
    "unroll",
    "var",
    "vectorized",
    "where",
    "writes",
]


def __getattr__(name: str) -> Any:
    return lookup(name)


def __dir__() -> list[str]:
    return all_names()
