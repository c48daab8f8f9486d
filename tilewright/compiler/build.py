"""Building: from a schedule, function or module to a module of machine code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..backends import backend_of
from ..ir.deep import deep_programs
from ..ir.errors import BuildError
from ..ir.function import PrimFunc
from ..ir.functor import statements
from ..ir.module import IRModule
from ..ir.op import rules_key
from ..ir.stable_key import stable_key
from ..ir.stmt import Allocate
from ..ir.transform import PassContext
from ..runtime.cache import digest
from ..target import Target
from ..tir.analysis.measure import scope_of
from .lower import lower_in_parts, lower_to_build


def build(
    inputs: Any,
    args: Sequence[Any] | None = None,
    target: Any = None,
    target_host: Any = None,
    runtime: Any = None,
    name: str | None = None,
    binds: Mapping[Any, Any] | None = None,
) -> Any:
    """Compile exactly the loops that are given.

    `inputs` is a te schedule with `args`, a PrimFunc, an IRModule, a list of these two, a tir.Schedule, or a dict from
    targets to modules. A te schedule without a `name` becomes "default_function"; a PrimFunc keeps its own name.
    Text in the place of `args` is the target.
    """
    if isinstance(args, (str, Target)) and target is None:  # `build([f, g], "llvm")`
        args, target = None, args
    with deep_programs():
        return _build_all(inputs, args, target, target_host, name, binds)


def _build_all(inputs: Any, args: Any, target: Any, target_host: Any, name: str | None, binds: Any) -> Any:
    if isinstance(inputs, Mapping) and not isinstance(inputs, IRModule):
        parts = [_build_one(m, None, t, target_host, name, binds) for t, m in inputs.items()]
        if not parts:
            raise BuildError("an empty dict of targets was given to build")
        for extra in parts[1:]:
            parts[0].import_module(extra)
        parts[0].beside = tuple(parts[1:])
        return parts[0]
    return _build_one(inputs, args, target, target_host, name, binds)


def _build_one(inputs: Any, args: Any, target: Any, host: Any, name: str | None, binds: Any) -> Any:
    chosen = target if target is not None else Target.current(allow_none=True)
    if chosen is None:
        chosen = Target("llvm")
    if not isinstance(chosen, Target) or host is not None:
        chosen = Target(chosen, host=host)
    with chosen:
        if name is None:
            name = "main" if isinstance(inputs, PrimFunc) else "default_function"
        backend = backend_of(chosen)
        if chosen.has("aot_executor"):
            from ..codegen.llvm.nests import Nests

            nests = Nests.current()
            if nests is not None:
                return _build_in_parts(inputs, args, name, binds, chosen, nests)
        return backend.build(lower_to_build(inputs, args, name, binds), chosen)


def _build_in_parts(inputs: Any, args: Any, name: str, binds: Any, target: Target, nests: Any) -> Any:
    """A module whose parallel loops are compiled separately, or taken from those that are known."""
    from ..codegen.llvm.linked import unit_of

    backend = backend_of(target)
    settings = f"{target} {PassContext.current()} {rules_key()}"

    def named(nest: PrimFunc) -> str:
        scopes = [scope_of(s.buffer_var) for s in statements(nest.body) if isinstance(s, Allocate)]
        return "__tw_nest_" + digest(settings, stable_key(nest), *scopes)[:32]

    mod, parts = lower_in_parts(inputs, args, name, binds, named, nests.known)
    made = {key: unit_of(backend.build(part, target)) for key, part in parts.items() if part is not None}
    nests.keep(made, list(parts))
    return backend.build(mod, target)
