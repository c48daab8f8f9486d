"""Functions for other code generators: out of a graph into the module, back into the graph, or marked as done."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from ...ir.errors import TVMError
from ...ir.module import GlobalVar, IRModule
from ..expr import Call, Function, Let
from ..visitor import ExprMutator
from .inline import substituted
from .rewriting import typed_pass


def _wanted(fn: Any, compiler_filter: str) -> bool:
    compiler = fn.attrs.get("Compiler") if isinstance(fn, Function) else None
    return compiler is not None and compiler_filter in ("", compiler)


def outline_compiler_functions(mod: IRModule, compiler_filter: str = "") -> IRModule:
    """Make functions of the module of those that stand where they are called, under the name in `global_symbol`.

        def @main(%x) {                                             def @f(%a, Compiler="mine", global_symbol="f") {…}
          fn (%a, Compiler="mine", global_symbol="f") {…}(%x) }  ->  def @main(%x) { @f(%x) }

    With a filter, only those of that code generator. `PartitionGraph` gives this form already.
    """
    work = _Outline(mod, compiler_filter)
    made = {gv: work.visit(f) if isinstance(f, Function) else f for gv, f in mod.functions.items()}
    return IRModule({**made, **work.made}, mod.type_definitions, mod.attrs)


class _Outline(ExprMutator):
    def __init__(self, mod: IRModule, compiler_filter: str) -> None:
        super().__init__()
        self.globals, self.compiler = set(mod.functions.values()), compiler_filter
        self.made: dict[GlobalVar, Function] = {}
        self.names: dict[str, GlobalVar] = {}

    def visit_function(self, fn: Function) -> Any:
        if fn in self.globals or not _wanted(fn, self.compiler):
            return fn if "Compiler" in fn.attrs else super().visit_function(fn)
        name = fn.attrs.get("global_symbol")
        if name is None:
            raise TVMError(
                f"a function for the code generator {fn.attrs['Compiler']!r} has no global_symbol to be its name"
            )
        if str(name) not in self.names:
            self.names[str(name)] = GlobalVar(str(name))
            self.made[self.names[str(name)]] = fn
        return self.names[str(name)]

    def visit_let(self, let: Let) -> Any:
        value = self.visit(let.value)
        if isinstance(value, GlobalVar) and isinstance(let.value, Function):
            self.memo_map[let.var] = value
            return self.visit(let.body)
        return Let(self.visit(let.var), value, self.visit(let.body), span=let.span)


def mark_compiler_functions_as_extern(mod: IRModule, compiler_filter: str = "") -> IRModule:
    """Mark the functions of the module for code generators as done, by the attribute Extern alone.

        def @f(%a, Compiler="mine", Primitive=1) {…}   ->   def @f(%a, Extern=1) {…}

    A model that still calls one cannot be built: its code is elsewhere.
    """

    def marked(f: Any) -> Any:
        if not _wanted(f, compiler_filter):
            return f
        return Function(f.params, f.body, f.ret_type, f.type_params, {"Extern": 1}, f.span)

    return mod.map_functions(marked)


def inline_compiler_functions(mod: IRModule, global_vars: Iterable[Any]) -> IRModule:
    """Put the bodies of some functions for code generators back where they are called, composite functions too.

    def @f(%a, Compiler="mine") { nn.relu(%a) }
    def @main(%x) { exp(@f(%x)) }                    ->     def @main(%x) { exp(nn.relu(%x)) }
    """
    names = {v if isinstance(v, str) else v.name_hint for v in global_vars}
    found = {gv: f for gv, f in mod.functions.items() if gv.name_hint in names and isinstance(f, Function)}
    missing = names - {gv.name_hint for gv in found}
    if missing:
        known = ", ".join(gv.name_hint for gv in mod.functions)
        raise TVMError(
            f"InlineCompilerFunctionsBoundTo: the module has no function {min(missing)!r}; it has: {known}"
        )
    work = _Inline(found)
    made = {
        gv: work.visit(f) if isinstance(f, Function) else f
        for gv, f in mod.functions.items()
        if gv not in found
    }
    return IRModule(made, mod.type_definitions, mod.attrs)


class _Inline(ExprMutator):
    def __init__(self, found: dict[GlobalVar, Function]) -> None:
        super().__init__()
        self.found = found

    def visit_call(self, call: Call) -> Any:
        new = super().visit_call(call)
        fn = self.found.get(new.op) if isinstance(new.op, GlobalVar) else None
        if fn is None:
            return new
        return substituted(_Composites(lambda name: True).visit(fn), new.args)


class _Composites(ExprMutator):
    """Inlines composite functions by name."""

    def __init__(self, wanted: Callable[[str], bool]) -> None:
        super().__init__()
        self.wanted = wanted

    def visit_call(self, call: Call) -> Any:
        new = super().visit_call(call)
        fn = new.op
        if isinstance(fn, Function) and "Composite" in fn.attrs and self.wanted(str(fn.attrs["Composite"])):
            return substituted(fn, new.args)
        return new


def inline_composites(mod: IRModule, target: str) -> IRModule:
    """Put the bodies of composite functions of a code generator, whose names start with its own, where they are called.

    fn (%a, Composite="mine.relu") { nn.relu(%a) }(%x)    ->    nn.relu(%x)
    """
    work = _Composites(lambda name: name.startswith(f"{target}."))
    return mod.map_functions(lambda f: work.visit(f) if isinstance(f, Function) else f)


OutlineCompilerFunctionsWithExistingGlobalSymbols = typed_pass(
    outline_compiler_functions, name="OutlineCompilerFunctionsWithExistingGlobalSymbols", whole_module=True
)
MarkCompilerFunctionsAsExtern = typed_pass(
    mark_compiler_functions_as_extern, name="MarkCompilerFunctionsAsExtern", whole_module=True
)
InlineCompilerFunctionsBoundTo = typed_pass(
    inline_compiler_functions, name="InlineCompilerFunctionsBoundTo", whole_module=True
)
InlineComposites = typed_pass(inline_composites, name="InlineComposites", whole_module=True)
