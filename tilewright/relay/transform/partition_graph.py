"""PartitionGraph: regions for other code generators become functions of the module."""

from __future__ import annotations

import re
from typing import Any

from ...ir.errors import TVMError
from ...ir.module import GlobalVar, IRModule
from ...runtime.registry import get_global_func
from ..analysis.annotated_regions import AnnotatedRegion
from ..binding import bind
from ..expr import Call, Constant, Expr, Function, Tuple, TupleGetItem, Var
from ..op.annotation import compiler_begin, compiler_end
from .annotate_target import DEFAULT
from .infer_type import infer_module
from .merge_compiler_regions import regions_of
from .rewriting import Mutator, is_call, is_kept_whole, type_of, typed_pass


def partition_graph(mod: IRModule, mod_name: str = "default", bind_constants: bool = True) -> IRModule:
    """Make a function of each region, for `relay.ext.NAME`, the code generator of its marks.

        def @main(%x) {
          %0 = nn.relu(compiler_begin(%x, "mine"));
          exp(compiler_end(%0, "mine"))
        }
            ->
        def @tvmgen_default_mine_main_0(%mine_0_i0, Compiler="mine", Primitive=1, Inline=1, global_symbol=…) {
          nn.relu(%mine_0_i0)
        }
        def @main(%x) { exp(@tvmgen_default_mine_main_0(%x)) }

    A region of several results gives a tuple. Constants become part of the function, unless `bind_constants=False`.
    The function `relay.ext.NAME.optimize` (module to module), if it is registered, may rewrite it before its name is
    given. Marks for "default" are taken away.

    Needs: types.
    """
    made = IRModule({}, mod.type_definitions, mod.attrs)
    used = {gv.name_hint for gv in mod.functions}
    for gv, func in mod.functions.items():
        if not isinstance(func, Function) or is_kept_whole(func):
            made[gv] = func
            continue
        flat: Function = _Flatten().visit(func)
        work = _Partition(flat, gv.name_hint, mod_name, bind_constants, used)
        made[gv] = work.visit(flat)
        for own, each in work.functions.items():
            made[own] = each
    return made


class _Flatten(Mutator):
    """Takes away the marks for "default", and moves the mark around a tuple to its fields."""

    def visit_call(self, call: Call) -> Any:
        new = super().visit_call(call)
        if not is_call(new, compiler_begin, compiler_end):
            return new
        if new.attrs.compiler == DEFAULT:
            return new.args[0]
        if is_call(new, compiler_end) and isinstance(new.args[0], Tuple):
            tup = new.args[0]
            return Tuple([compiler_end(f, new.attrs.compiler) for f in tup.fields], tup.span)
        return new


def _base(expr: Any) -> Any:
    """An expression without marks around it."""
    while is_call(expr, compiler_begin, compiler_end):
        expr = expr.args[0]
    return expr


def _is_constant(expr: Any) -> bool:
    fields = expr.fields if isinstance(expr, Tuple) else (expr,)
    return all(isinstance(f, Constant) for f in fields)


class _Parts:
    """What is known of the function of a region: parameters with their arguments, and its results by expression."""

    def __init__(self) -> None:
        self.args: dict[Var, Expr] = {}
        self.params: dict[Any, Var] = {}  # by the expression that is given
        self.results: dict[Any, Expr] = {}


class _Partition(Mutator):
    def __init__(
        self, func: Function, name: str, mod_name: str, bind_constants: bool, used: set[str]
    ) -> None:
        super().__init__()
        self.regions = regions_of(func, name)
        self.mod_name, self.bind_constants, self.used = mod_name, bind_constants, used
        self.functions: dict[GlobalVar, Function] = {}
        self.parts: dict[AnnotatedRegion, _Parts] = {}

    def visit_call(self, call: Call) -> Any:
        new = super().visit_call(call)
        if not is_call(call, compiler_begin, compiler_end):
            return new
        region = self.regions.get_region(call)
        assert region is not None
        if not region.rets:
            return new.args[0]  # nothing was marked between the begin and the value that is used
        parts = self.parts.setdefault(region, _Parts())
        if is_call(call, compiler_end):
            if not parts.results:
                self._make(region, parts)
            return parts.results[call.args[0]]
        base = _base(call)
        if base not in parts.params:
            var = Var(f"{region.target}_{region.id}_i{region.args.index(call)}", type_of(call))
            parts.params[base], parts.args[var] = var, new.args[0]
        return parts.params[base]

    def _make(self, region: AnnotatedRegion, parts: _Parts) -> None:
        outs = dict.fromkeys(end.args[0] for end in region.rets)
        fields = [self.visit(e) for e in outs]
        call = self._call(region, parts, fields[0] if len(fields) == 1 else Tuple(fields))
        for i, e in enumerate(outs):
            parts.results[e] = call if len(fields) == 1 else TupleGetItem(call, i)

    def _call(self, region: AnnotatedRegion, parts: _Parts, body: Any) -> Call:
        func = Function(list(parts.args), body)
        known = {v: e for v, e in parts.args.items() if self.bind_constants and _is_constant(e)}
        if known:
            func = bind(func, known)  # type: ignore[assignment]
        func = _optimized(func, region.target)
        name = self._name(f"tvmgen_{self.mod_name}_{region.target}_{region.name}_{region.id}")
        attrs = {"global_symbol": name, "Primitive": 1, "Compiler": region.target, "Inline": 1}
        gv = GlobalVar(name)
        self.functions[gv] = Function(
            func.params, func.body, func.ret_type, func.type_params, {**func.attrs, **attrs}
        )
        return Call(gv, [e for v, e in parts.args.items() if v not in known])

    def _name(self, wanted: str) -> str:
        name = base = re.sub(r"\W", "_", wanted)
        count = 0
        while name in self.used:
            count += 1
            name = f"{base}_{count}"
        self.used.add(name)
        return name


def _optimized(func: Function, target: str) -> Function:
    """The function after the passes of its code generator's own."""
    work = get_global_func(f"relay.ext.{target}.optimize", allow_missing=True)
    if work is None:
        return func
    made = work(infer_module(IRModule.from_expr(func)))
    if not isinstance(made, IRModule) or "main" not in made:
        raise TVMError(
            f"relay.ext.{target}.optimize returned {type(made).__name__}; it takes a module with the function `main` "
            "and must return one"
        )
    found: Function = made["main"]
    return found


PartitionGraph = typed_pass(partition_graph, name="PartitionGraph", opt_level=0, whole_module=True)
