"""The passes of every `partition_for_NAME`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...ir.module import IRModule
from ...ir.transform import PassContext, Sequential
from ..expr import Call, Constant, Function
from ..op.elementwise import add
from ..transform.rewriting import CallRewriter, is_call, typed_pass


def partition_for(
    name: str, mod: IRModule, params: Mapping[str, Any] | None = None, only_with: Sequence[str] = ()
) -> IRModule:
    """The module with functions for a code generator: those of its patterns, and of the operators that it takes.

    Batch norms are folded into the weights first, if these are given in `params`. With `only_with`, a function without
    any of these operators is left to this compiler.
    """
    from .. import transform as T
    from ..binding import bind_params_in_module
    from .register import get_pattern_table

    passes = Sequential(
        [
            T.InferType(),
            T.CanonicalizeOps(),
            T.SimplifyInference(),
            T.FoldConstant(),
            T.FoldScaleAxis(),
            T.SimplifyExpr(),
            T.FoldConstant(),
            OneBias(),
            T.FoldConstant(),
            T.MergeComposite(get_pattern_table(name)),
            T.AnnotateTarget(name),
            T.MergeCompilerRegions(),
            T.PartitionGraph(),
        ]
    )
    with PassContext(opt_level=3):
        made: IRModule = passes(bind_params_in_module(mod, params))
        return _pruned(made, name, only_with) if only_with else made


def one_bias(func: Function) -> Function:
    """Add constants that are added one after the other first, so that a bias behind a folded batch norm is one.

    add(add(%x, c), d)     ->     add(%x, add(c, d))
    """

    def added(call: Call) -> Any:
        x, d = call.args
        if is_call(x, add) and isinstance(d, Constant) and isinstance(x.args[1], Constant):
            return add(x.args[0], add(x.args[1], d))
        return None

    made: Function = CallRewriter({add: added}).visit(func)
    return made


OneBias = typed_pass(one_bias, name="OneBias")


def _pruned(mod: IRModule, name: str, wanted: Sequence[str]) -> IRModule:
    """The module with functions that do too little for a code generator inlined again."""
    from .. import transform as T
    from ..analysis import post_order

    small = []
    for gv, func in mod.functions.items():
        if isinstance(func, Function) and func.attrs.get("Compiler") == name:
            names = {getattr(e.op, "name", "") for e in post_order(func) if isinstance(e, Call)}
            if not names & set(wanted):
                small.append(gv)
    found: IRModule = T.InlineCompilerFunctionsBoundTo(small)(mod)
    return found
