"""AnnotateTarget: marks around the operators that other code generators compile."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from ...ir.errors import TVMError
from ..expr import Call, Function, If, Let, Tuple, TupleGetItem, Var, set_checked_type
from ..op.annotation import compiler_begin, compiler_end
from ..op.registry import RelayOp
from .rewriting import Mutator, is_call, is_kept_whole, typed_pass

DEFAULT: Final = "default"  # the compiler that has no code generator of its own: this one


def annotate_target(
    func: Function, targets: str | Sequence[str], include_non_call_ops: bool = True
) -> Function:
    """Mark each operator with the first code generator that takes it.

        AnnotateTarget("mine")          register_op_attr("nn.relu", "target.mine", lambda call: True)

        nn.relu(%x)     ->     compiler_end(nn.relu(compiler_begin(%x, "mine")), "mine")

    An operator is taken if its attribute `target.mine` is a function that accepts the call; a composite function, if
    its name starts with `mine.`. All others are marked "default", and so are tuples between operators of different
    code generators; without `include_non_call_ops` tuples have no marks. Marks of an earlier run stay.

    Needs: types.
    """
    names = [targets] if isinstance(targets, str) else list(targets)
    if not names or not all(isinstance(n, str) and n for n in names):
        raise TVMError(f"AnnotateTarget takes the name of a code generator, or several, not {targets!r}")
    work = _AnnotateAll(names) if include_non_call_ops else _AnnotateCalls(names)
    made: Function = work.visit(func)
    return made


def _mark(border: Any, expr: Any, target: str) -> Call:
    made: Call = border(expr, target)
    set_checked_type(made, expr._checked_type)
    return made


class _Annotate(Mutator):
    """Rebuilds a function with marks; `target_of` has the code generator of each new expression."""

    def __init__(self, targets: list[str]) -> None:
        super().__init__()
        self.targets = targets
        self.target_of: dict[Any, str] = {}

    def choose(self, call: Call) -> str:
        """The code generator of a call, as it was before."""
        for target in self.targets if isinstance(call.op, RelayOp) else ():
            check = call.op.get_attr(f"target.{target}")
            if check is not None and check(call):
                return target
        if isinstance(call.op, Function):
            owner = str(call.op.attrs.get("Composite", "")).partition(".")
            if owner[1] and owner[0] in self.targets:
                return owner[0]
        return DEFAULT

    def marked_args(self, args: Sequence[Any], target: str = "") -> tuple[str, list[Any]]:
        """The arguments between their own marks and those of their user, whose code generator is theirs if it is not
        given and they have the same one."""
        kept: dict[int, Any] = {}
        ended: list[Any] = []
        own: set[str] = set()
        for i, arg in enumerate(args):
            came = DEFAULT
            if is_call(arg, compiler_begin):
                if arg.attrs.compiler != DEFAULT:
                    kept[i] = arg
                arg = arg.args[0]
                if is_call(arg, compiler_end):
                    came = arg.attrs.compiler
            elif arg in self.target_of:
                came = self.target_of[arg]
                if not (isinstance(arg, Call) and not arg.args):  # a creation has no inputs to be marked
                    arg = _mark(compiler_end, arg, came)
            ended.append(arg)
            own.add(came)
        if not args:
            return target, list(args)
        target = target or (own.pop() if len(own) == 1 else DEFAULT)
        return target, [
            kept[i] if i in kept else _mark(compiler_begin, e, target) for i, e in enumerate(ended)
        ]

    def ended(self, expr: Any) -> Any:
        """A value as a user that is not marked takes it."""
        if expr in self.target_of:
            if (isinstance(expr, Call) and not expr.args) or (isinstance(expr, Tuple) and not expr.fields):
                return expr
            target = self.target_of[expr]
        elif is_call(expr, compiler_end) and expr.attrs.compiler == DEFAULT:
            expr = expr.args[0]
            target = self.target_of[expr]
        else:
            return expr
        made = _mark(compiler_end, expr, target)
        self.target_of[made] = target
        return made

    def visit_call(self, call: Call) -> Any:
        new = super().visit_call(call)
        if is_call(call, compiler_begin):
            return new
        if is_call(call, compiler_end):
            self.target_of.setdefault(new.args[0], new.attrs.compiler)
            return new
        first = call.args[0] if call.args else None
        if is_call(first, compiler_begin) and first.attrs.compiler != DEFAULT:
            return new  # marked by an earlier run
        if isinstance(call.op, Var):
            made = self.call_of_closure(new)
            if made is not None:
                return made
        target, args = self.marked_args(new.args, self.choose(call))
        made = Call(new.op, args, new.attrs, new.type_args, call.span)
        set_checked_type(made, call._checked_type)
        self.target_of[made] = target
        return made

    def call_of_closure(self, call: Call) -> Call | None:
        return None

    def visit_function(self, fn: Function) -> Any:
        if is_kept_whole(fn):
            return fn
        return fn.with_body(self.ended(self.visit(fn.body)))

    def visit_let(self, let: Let) -> Any:
        var, value = self.visit(let.var), self.visit(let.value)
        if not isinstance(value, Function):
            value = self.marked_args([value])[1][0]
        return Let(var, value, self.ended(self.visit(let.body)), span=let.span)

    def visit_if(self, if_: If) -> Any:
        cond, yes, no = (self.ended(self.visit(e)) for e in if_.children())
        return If(cond, yes, no, if_.span)


class _AnnotateAll(_Annotate):
    """Marks of tuples too."""

    def visit_tuple(self, tup: Tuple) -> Any:
        target, fields = self.marked_args([self.visit(f) for f in tup.fields])
        made = Tuple(fields, tup.span)
        self.target_of[made] = target
        return made

    def visit_tuple_getitem(self, op: TupleGetItem) -> Any:
        target, (value,) = self.marked_args([self.visit(op.tuple_value)])
        made = TupleGetItem(value, op.index, span=op.span)
        self.target_of[made] = target
        return made


class _AnnotateCalls(_Annotate):
    """Marks of calls only."""

    def call_of_closure(self, call: Call) -> Call | None:
        return call.over([self.ended(a) for a in call.args])

    def visit_tuple(self, tup: Tuple) -> Any:
        return Tuple([self.ended(self.visit(f)) for f in tup.fields], tup.span)

    def visit_tuple_getitem(self, op: TupleGetItem) -> Any:
        return TupleGetItem(self.ended(self.visit(op.tuple_value)), op.index, span=op.span)


AnnotateTarget = typed_pass(annotate_target, name="AnnotateTarget", opt_level=0)
