"""The target of each function, as an attribute."""

from __future__ import annotations

from typing import Any

from ...homes import home_of
from ...ir.function import PrimFunc
from ...ir.module import IRModule


def bind_target(mod: IRModule, target: Any) -> IRModule:
    """Give each function the target that it is compiled for.

        def f(): …       ->       def f():
                                      T.func_attr({"target": T.target("cuda")})

    A function that has a target keeps it. Only a function with a symbol of its own knows the host, as it is called from
    outside; one that is marked `tir.is_host_func` runs on the host.
    """
    chosen = home_of("targets").Target(target)
    return mod.map_functions(lambda f: _bound(f, chosen) if isinstance(f, PrimFunc) else f)


def _bound(func: PrimFunc, target: Any) -> PrimFunc:
    exposed, held = "global_symbol" in func.attrs, func.attrs.get("target")
    on_host = bool(func.attrs.get("tir.is_host_func"))
    if held is not None:
        own = home_of("targets").Target(held)
        if exposed and target.host is not None and own.host is None:
            func = func.with_attr("target", own.with_host(target.host))
    elif on_host:
        host = target.host or home_of("targets").Target("llvm")
        func = func.with_attr("target", host.with_host(host))
    else:
        func = func.with_attr("target", target if exposed else target.without_host())
    return func.without_attr("tir.is_host_func")  # type: ignore[no-any-return]
