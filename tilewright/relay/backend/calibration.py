"""Values at the borders of functions for other code generators, which calibrate their number formats with them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...ir.errors import TVMError
from ...ir.module import GlobalVar, IRModule
from ..analysis import post_order
from ..expr import Call, Expr, Function, Tuple, TupleGetItem
from ..transform.infer_type import infer_module
from ..ty import TupleType


def calibration_data(mod: IRModule, data: Mapping[str, Any]) -> dict[GlobalVar, dict[str, list[Any]]]:
    """What `relay.analysis.get_calibration_data` returns."""
    from ..build_module import create_executor

    mod = infer_module(mod)
    main: Function = mod["main"]
    wanted: list[Expr] = []
    places: dict[GlobalVar, tuple[int, int, int]] = {}
    for call in post_order(main):
        if not isinstance(call, Call) or not isinstance(call.op, GlobalVar) or not _is_other(mod[call.op]):
            continue
        if call.op in places:
            raise TVMError(
                f"get_calibration_data: {call.op} is called twice, so that its values are not one set"
            )
        kind = call.checked_type
        outs: list[Expr] = [call]
        if isinstance(kind, TupleType):
            outs = [TupleGetItem(call, i) for i in range(len(kind.fields))]
        places[call.op] = (len(wanted), len(call.args), len(outs))
        wanted += [*call.args, *outs]
    if not places:
        return {}
    plain = {gv: _own(f) for gv, f in mod.functions.items() if f is not main}
    made = IRModule({**plain, mod.get_global_var("main"): Function(main.params, Tuple(wanted))})
    found = list(create_executor("graph", made).evaluate()(**data))
    return {
        gv: {"inputs": found[at : at + ins], "outputs": found[at + ins : at + ins + outs]}
        for gv, (at, ins, outs) in places.items()
    }


def _is_other(func: Any) -> bool:
    return isinstance(func, Function) and "Compiler" in func.attrs


def _own(func: Any) -> Any:
    """A function for another code generator as one for this compiler."""
    if not _is_other(func):
        return func
    return Function(func.params, func.body, func.ret_type, func.type_params, {"Inline": 1})
