"""Graphs in other layouts: the common part of ConvertLayout and AlterOpLayout.

Each expression is kept in the layout of its producer, together with its layout in the program:

    Laid(expr, old="NCHW", new="NHWC")

An operator that supports the new layout uses it, with adapted attributes (`layout_rules.py`); one that does not gets
its operands in the old layout. So layout transforms remain only where two operators disagree.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from .. import op as R
from ..expr import Call, Expr, Tuple, TupleGetItem
from ..op import layouts as names
from ..op.traits import is_regular, traits_of
from .rewriting import Mutator, name_of

Choose = Callable[[Call, Call], Call | None]


@dataclass
class Laid:
    """A new expression, the layout of the old one, and its own; both None if they are equal."""

    expr: Expr
    old: str = ""
    new: str = ""
    parts: list[Laid] | None = None  # fields of a tuple
    made: dict[str, Expr] = field(default_factory=dict)  # in other layouts

    @property
    def moved(self) -> bool:
        """Whether its layout is tracked: an expression below it was converted, possibly back again."""
        return bool(self.new)

    def in_layout(self, layout: str) -> Expr:
        """The expression in another layout."""
        if layout == self.new:
            return self.expr
        found = self.made.get(layout)
        if found is None:
            found = R.layout_transform(self.expr, src_layout=self.new, dst_layout=layout)
            self.made[layout] = found
        return found

    def plain(self) -> Expr:
        """The expression in the layout of the program."""
        if self.parts is not None:
            return Tuple([p.plain() for p in self.parts])
        return self.in_layout(self.old) if self.moved else self.expr


def _blocked(operand: Laid) -> bool:
    """Whether the program itself has an operand in blocks, so that its axes are not its letters."""
    return operand.moved and bool(names.blocks(operand.old))


def _knows_blocks(at: Call) -> bool:
    """Whether an operator has no axes of its own, names its layout, or has a rule of the program."""
    own: Any = at.op.get_attr("FInferCorrectLayout")
    return own is not None or is_regular(at.op) or traits_of(at).layout == "attribute"


def plain_part(layout: str, gone: str) -> str:
    """A layout without some of its axes."""
    return "".join(f"{size or ''}{v}" for v, size in names.axes(layout) if v.upper() not in gone)


def place_of_weight(at: Call) -> int:
    """Which operand of a convolution is its weight: the one after the data, if none is named so."""
    return next((i for i, name in enumerate(at.op.inputs or ()) if name in ("weight", "kernel")), 1)


class LayoutRewriter(Mutator):
    """Rewrites a function so that calls which `choose` changes work in other layouts."""

    def __init__(self, choose: Choose, rule_of: Callable[[Call], Callable[..., Laid | None]]) -> None:
        super().__init__()
        self.choose, self.rule_of = choose, rule_of
        self.laid: dict[Any, Laid] = {}
        self.converted: dict[tuple[Any, str, str], Expr] = {}

    # -- operands ----------------------------------------------------------------------------
    def get(self, old: Any) -> Laid:
        """The converted form of an operand."""
        new = self.visit(old)
        return self.laid.get(old) or Laid(new)

    def to(self, operand: Laid, old: str, new: str) -> Expr:
        """An operand that the program has in layout `old`, in layout `new`."""
        if operand.new and operand.old == old:
            return operand.in_layout(new)
        expr = operand.plain()
        if old == new:
            return expr
        key = (expr, old, new)
        if key not in self.converted:
            self.converted[key] = R.layout_transform(expr, src_layout=old, dst_layout=new)
        return self.converted[key]

    def beside(self, operand: Laid, kind: Any, old: str, new: str) -> Expr | None:
        """An operand that broadcasts against a tensor of layout `old`, for its form in layout `new`."""
        if operand.new and operand.old == old and operand.new == new:
            return operand.expr
        if any(not isinstance(d, int) for d in kind.shape):
            return None
        if all(d == 1 for d in kind.shape):
            expr = operand.plain()
            return R.reshape(expr, newshape=()) if kind.shape else expr
        if names.blocks(old):
            return None  # a part of a blocked axis may be repeated, which its layout does not say
        shape = (1,) * (len(old) - len(kind.shape)) + kind.shape
        expr = operand.plain()
        if len(shape) > len(kind.shape):
            expr = R.expand_dims(expr, axis=0, num_newaxis=len(shape) - len(kind.shape))
        sizes = dict(zip(old, shape, strict=True))
        inner = names.blocks(new)
        single = "".join(v for v in inner if sizes[v] == 1)
        if any(sizes[v] % size for v, size in inner.items() if v not in single):
            return None
        wanted = "".join(
            f"{size or ''}{v}" for v, size in names.axes(new) if not (size and v.upper() in single)
        )
        made: Expr = expr if wanted == old else R.layout_transform(expr, src_layout=old, dst_layout=wanted)
        for at, (v, size) in enumerate(names.axes(new)):
            if size and v.upper() in single:
                made = R.expand_dims(made, axis=at, num_newaxis=1)
        return made

    # -- the walk ----------------------------------------------------------------------------
    def visit_call(self, call: Call) -> Any:
        for arg in call.args:
            self.visit(arg)
        made = self.rewritten(call)
        if made is None:
            return super().visit_call(call)
        self.laid[call] = made
        return made.plain()

    def rewritten(self, at: Call) -> Laid | None:
        if not name_of(at):
            return None
        plain: Any = Mutator.visit_call(self, at)
        chosen = self.choose(at, plain)
        if chosen is not None:
            return self.anchored(at, plain, chosen)
        carried = [self.get(a) for a in at.args]
        if not any(c.moved for c in carried) and not self._moved_fields(at):
            return None
        if not _knows_blocks(at) and any(_blocked(c) for c in self._all(at, carried)):
            return None
        return self.rule_of(at)(self, at, carried)

    def _all(self, at: Call, carried: list[Laid]) -> list[Laid]:
        """The operands, and the fields of those that are tuples."""
        return carried + [self.get(f) for a in at.args if isinstance(a, Tuple) for f in a.fields]

    def _moved_fields(self, at: Call) -> bool:
        return any(isinstance(a, Tuple) and any(self.get(f).moved for f in a.fields) for a in at.args)

    def anchored(self, at: Call, plain: Call, chosen: Call) -> Laid | None:
        """A call in its chosen layouts, with converted operands."""
        old, new = at.attrs, chosen.attrs
        # An operand between the data and the weight, such as offsets, is laid out as the data.
        first = "layout" if "layout" in new else "data_layout"
        args = list(chosen.args)
        named = [first] if first == "layout" else [first] * place_of_weight(at) + ["kernel_layout"]
        for i, name in enumerate(named):
            if args[i] is plain.args[i]:
                args[i] = self.to(self.get(at.args[i]), old[name], new[name])
            elif old[name] != new[name]:
                args[i] = R.layout_transform(args[i], src_layout=old[name], dst_layout=new[name])
        out_old, out_new = old.get("out_layout") or old[first], new.get("out_layout") or new[first]
        return Laid(Call(chosen.op, args, new, at.type_args, at.span), out_old, out_new)

    def visit_tuple_getitem(self, op: TupleGetItem) -> Any:
        made = super().visit_tuple_getitem(op)
        carried = self.laid.get(op.tuple_value)
        if carried is not None and carried.parts is not None:
            self.laid[op] = carried.parts[op.index]
            return carried.parts[op.index].plain()
        return made
