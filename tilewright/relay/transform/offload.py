"""Offload: functions that an accelerator computes, on tensors in the layout of its memories."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from typing import Any, Final

from ...homes import home_of
from ...ir.errors import TVMError
from ...target import Target
from .. import op as R
from ..expr import Call, Expr, Function, Var
from ..op.registry import RelayOp
from ..visitor import flow_inputs, in_order
from .infer_type import infer_type
from .packed_ops import (
    Blocks,
    blocks_of,
    is_narrowing,
    is_product,
    is_view,
    is_widening,
    pack,
    pack_channels,
    pack_weights,
    range_of,
    rule_of,
    unpack,
)
from .rewriting import static_shape, type_of, typed_pass

OFFLOADED: Final = "Offloaded"  # the attribute of a function for the chip
PARTITIONED: Final = "Partitioned"  # the attribute of a function of which no more is to be offloaded


def is_offloaded(fn: Function) -> bool:
    """Whether a function is computed by the accelerator of the target."""
    return bool(fn.attrs.get(OFFLOADED))


def why_on_host(fn: Function, target: Target) -> str:
    """The reason why the host computes a function of a model for an accelerator."""
    chip = target.accelerator
    told, blocks = f"{chip.name} does not compute it", blocks_of(chip)
    calls = [e for e in in_order(fn.body, flow_inputs) if e.__class__ is Call and isinstance(e.op, RelayOp)]
    for e in sorted(calls, key=lambda e: not is_product(e)):  # the product is the reason, if there is one
        rule = rule_of(e)
        why = rule.why_not(e, blocks) if rule is not None and blocks is not None else ""
        if why:
            return f"{told}: {e.op.name}: {why}"
    return told


@dataclass(frozen=True)
class Region:
    """A part of a program: the calls behind the first call of operator `start`, in front of the next of `stop`.

    A number as well says which call it is, among all calls in order.
    """

    start: str = ""
    stop: str = ""
    start_at: int | None = None
    stop_at: int | None = None

    def of(self, calls: list[Call]) -> list[Call]:
        """The calls in the region; an operator that does not occur is an error."""
        begin = self._place(calls, self.start, self.start_at, 0) + 1 if self.start else 0
        end = self._place(calls, self.stop, self.stop_at, begin) if self.stop else len(calls)
        return calls[begin:end]

    def _place(self, calls: list[Call], name: str, at: int | None, begin: int) -> int:
        for i, e in enumerate(calls[begin:], begin):
            if e.op.name == name and at in (None, i):
                return i
        where = "" if at is None else f" as call {at}"
        known = ", ".join(dict.fromkeys(e.op.name for e in calls[begin:]))
        raise TVMError(
            f"Offload: the operator {name!r} does not occur{where} behind call {begin}; these do: {known}"
        )


def offload(func: Function, region: Region | None = None) -> Function:
    """For an accelerator, partition a function into functions of its units and the rest, which the host computes.

        %0 = nn.conv2d(%x, %w)            %f = fn (%p0, %p1, Primitive=1, Offloaded=1) {
        %1 = right_shift(%0, 8)     ->           cast(right_shift(nn.conv2d(%p0, %p1, "NCHW1n16c", …), 8), "int8") }
        %2 = cast(%1, "int8")             %0 = layout_transform(%x, "NCHW", "NCHW1n16c");
        nn.softmax(%2)                    %1 = layout_transform(%w, "OIHW", "OIHW16o16i");
                                          nn.softmax(layout_transform(%f(%0, %1), "NCHW1n16c", "NCHW"))

    Products of matrices and convolutions take the elementwise operators behind them; pooling, sums over images and
    elementwise operators on results of the chip are functions of its vector unit, and on a chip without a matrix unit
    those on any tensors. The rules of the scheduler decide:
    a function that they refuse loses its last operators, which the host computes. Tensors are packed and unpacked only
    between chip and host. Given a region, the chip computes nothing outside of it, now or later. Other targets are
    unchanged.

    Needs: types, no lets or branches. Gives: functions for the chip, with the attributes Primitive and Offloaded.
    """
    target = Target.current(allow_none=True)
    if target is None or not target.is_accelerator or func.attrs.get(PARTITIONED):
        return func
    blocks = blocks_of(target.accelerator)
    if blocks is None:
        return func
    groups = _Groups(func, blocks, region or Region())
    made = _Emit(groups, target).run(func)
    _warn_of_types(groups)
    return made if region is None else made.with_attr(PARTITIONED, 1)


@dataclass(frozen=True, eq=False)
class _Joint:
    """A conversion and its inverse that are left out inside a group, in front of its member number `at`."""

    at: int
    narrow: Call
    wide: Call


@dataclass(eq=False)
class _Group:
    """Operators of one function for the chip, in order; the last one is its result."""

    members: list[Call]
    closed: bool = False  # the result is stored in another type than the unit computes with
    joints: list[_Joint] = field(default_factory=list)

    @property
    def root(self) -> Call:
        return self.members[-1]


# ---------------------------------------------------------------------------- groups
class _Groups:
    """The groups of a function, by member."""

    def __init__(self, func: Function, blocks: Blocks, region: Region) -> None:
        self.blocks = blocks
        self.order: list[Any] = in_order(func.body, flow_inputs)
        self.users: dict[Any, list[Any]] = {}
        for e in self.order:
            for x in flow_inputs(e):
                self.users.setdefault(x, []).append(e)
        self.users.setdefault(func.body, []).append(func)
        self.of: dict[Any, _Group] = {}
        self.left_out: set[Any] = set()  # conversions inside groups
        self.refused: dict[Call, str] = {}
        calls = region.of([e for e in self.order if e.__class__ is Call and isinstance(e.op, RelayOp)])
        for e in calls:
            self._visit(e)
        for e in reversed(calls):
            self._precede(e)

    def _precede(self, e: Call) -> None:
        """Let the chip reduce windows of a tensor of the host, if only the chip uses the result."""
        rule = None if e in self.of or e in self.refused or e.op.traits.vector else rule_of(e)
        if rule is not None and all(u in self.of for u in self._final_users(e)):
            wide = str(type_of(e).dtype) == self.blocks.wide
            self._join(_Group([], closed=not wide), e)

    def _final_users(self, e: Any) -> list[Any]:
        """The users of a tensor, and of its views and conversions."""
        out = []
        for u in self.users[e]:
            out += self._final_users(u) if is_view(u) or is_widening(u, self.blocks) else [u]
        return out

    def _visit(self, e: Call) -> None:
        if is_widening(e, self.blocks) or is_view(e):
            return  # loads do it, or nobody
        if is_narrowing(e, self.blocks):
            group = self._open(e.args[0], e)
            if group is not None:
                self._join(group, e)
                group.closed = True
            return
        rule = rule_of(e)
        if rule is None:
            return
        why = rule.why_not(e, self.blocks)
        if why:
            self.refused[e] = why
            return
        data = [e.args[i] for i, kind in rule.operands(e).items() if kind == "data"]
        elementwise = bool(e.op.traits.vector)
        found = [g for x in data if (g := self._open(x, e)) is not None] if elementwise else []
        if found:
            group = max(found, key=lambda g: is_product(g.members[0]))
            self._reopen(group, data)
            self._join(group, e)
        elif is_product(e) or self.blocks.matrix is None or any(self.origin(x) in self.of for x in data):
            wide = str(type_of(e).dtype) == self.blocks.wide
            self._join(_Group([], closed=not wide), e)

    def _join(self, group: _Group, e: Call) -> None:
        group.members.append(e)
        self.of[e] = group

    def origin(self, x: Any) -> Any:
        """The expression whose blocks an operand has: views and conversions of loads change none."""
        while is_view(x) or is_widening(x, self.blocks):
            x = x.args[0]
        return x

    def _open(self, x: Any, user: Any) -> _Group | None:
        """The group that a user of its result can join."""
        if self.users[x] != [user]:
            return None
        group = self.of.get(x)
        if group is not None:
            return group if group.root is x and not group.closed else None
        if not is_widening(x, self.blocks):
            return None
        narrow = x.args[0]
        group = self.of.get(narrow)
        if group is None or group.root is not narrow or self.users[narrow] != [x]:
            return None
        exact = is_narrowing(narrow, self.blocks) and _fits(narrow.args[0], str(narrow.attrs.dtype))
        return group if exact else None

    def _reopen(self, group: _Group, data: list[Any]) -> None:
        """Leave out a conversion and its inverse in front of an operator, which change nothing."""
        if not group.closed:
            return
        narrow = group.members.pop()
        del self.of[narrow]
        self.left_out.add(narrow)
        (wide,) = [x for x in data if is_widening(x, self.blocks) and x.args[0] is narrow]
        group.joints.append(_Joint(len(group.members), narrow, wide))
        group.closed = False

    def split(self, group: _Group) -> tuple[_Group, _Group]:
        """A group as two, with the last conversion that was left out at the end of the first."""
        joint = group.joints[-1]
        first = _Group([*group.members[: joint.at], joint.narrow], True, group.joints[:-1])
        rest = _Group(group.members[joint.at :], group.closed)
        self.left_out.discard(joint.narrow)
        self.of |= dict.fromkeys(first.members, first) | dict.fromkeys(rest.members, rest)
        return first, rest


def _fits(x: Any, dtype: str) -> bool:
    """Whether all values of an expression are those of a type."""
    low, high = range_of(x)
    half = 1 << int(dtype.removeprefix("int")) - 1 if dtype.startswith("int") else 0
    return -half <= low <= high < half


# ---------------------------------------------------------------------------- the new function
class _Emit:
    """Builds the function in which groups are functions for the chip."""

    def __init__(self, groups: _Groups, target: Target) -> None:
        self.groups, self.target, self.blocks = groups, target, groups.blocks
        self.packed: dict[Any, Expr] = {}  # results of the chip, and tensors that were packed for it
        self.plain: dict[Any, Any] = {}
        self.known: dict[str, str] = {}  # reasons of the scheduler, by the text of a function

    def run(self, func: Function) -> Function:
        for e in self.groups.order:
            group = self.groups.of.get(e)
            if group is not None and group.root is e:
                self._offload(group)
            elif group is None and not self._only_inside(e):
                self.plain_of(e)
        body = self.plain_of(func.body)
        return func.updated(body=body)

    def _only_inside(self, e: Any) -> bool:
        """Whether an expression is computed on the host only if something there needs it."""
        return is_view(e) or is_widening(e, self.blocks) or e in self.groups.left_out

    def plain_of(self, x: Any) -> Any:
        """An expression as the host has it."""
        found = self.plain.get(x)
        if found is None:
            if x in self.packed and x in self.groups.of:
                found = unpack(self.packed[x], self.blocks, static_shape(x) or ())
            else:
                found = x.map_children(lambda c: self.plain_of(c) if isinstance(c, Expr) else c)
            self.plain[x] = found
        return found

    def packed_of(self, x: Any) -> Expr:
        """A tensor in blocks."""
        found = self.packed.get(x)
        if found is None:
            found = self.packed[x] = pack(self.plain_of(x), self.blocks)
        return found

    def _offload(self, group: _Group) -> None:
        """Make the function of a group; operators that the scheduler refuses are left to the host, the last first."""
        members = list(group.members)
        while members:
            fn, args = _Body(self, group, members).function()
            why = self._why_not(fn)
            if not why:
                self.packed[members[-1]] = Call(fn, args)
                break
            if group.joints:
                for part in self.groups.split(group):
                    self._offload(part)
                return
            self.groups.refused[members.pop()] = why
        for e in group.members[len(members) :]:
            del self.groups.of[e]

    def _why_not(self, fn: Function) -> str:
        text = str(fn)
        if text not in self.known:
            self.known[text] = home_of("graph_kernels").why_not_on_chip(fn, self.target)
        return self.known[text]


class _Body:
    """The function of a group: its parameters are packed tensors."""

    def __init__(self, emit: _Emit, group: _Group, members: list[Call]) -> None:
        self.emit, self.members, self.blocks = emit, members, emit.blocks
        self.params: dict[Expr, Var] = {}
        self.inside: dict[Expr, Expr] = {}
        self.same = {j.wide: j.narrow.args[0] for j in group.joints}
        self.wide: dict[Expr, Expr] = {}

    def function(self) -> tuple[Function, list[Expr]]:
        """The function, and the arguments of its call."""
        for e in self.members:
            self.inside[e] = self._made(e)
        root = self.members[-1]
        result = self.inside[root]
        kind = str(type_of(root).dtype)
        if str(type_of(result).dtype) != kind:
            result = R.cast(result, dtype=kind)
        fn = Function(list(self.params.values()), result, attrs={"Primitive": 1, OFFLOADED: 1})
        return infer_type(fn), list(self.params)

    def _made(self, e: Call) -> Expr:
        if is_narrowing(e, self.blocks):
            return R.cast(self._own(e.args[0]), dtype=str(e.attrs.dtype))  # type: ignore[arg-type]
        rule = rule_of(e)
        assert rule is not None
        kinds = rule.operands(e)
        args = [self._operand(e, a, kinds[i]) if i in kinds else a for i, a in enumerate(e.args)]
        return rule.make(e, args, self.blocks)

    def _own(self, x: Any) -> Expr | None:
        return self.inside.get(self.same.get(x, x))

    def _operand(self, e: Call, x: Any, kind: str) -> Expr:
        own = self._own(x)
        if own is not None:
            return own
        emit = self.emit
        if kind == "weights":
            groups = e.attrs.get("groups", 1) if e.attrs else 1
            return self._param(pack_weights(emit.plain_of(x), groups, self.blocks))
        if kind == "channels":
            given = self._param(pack_channels(emit.plain_of(x), self.blocks))
        else:
            given = self._param(emit.packed_of(emit.groups.origin(x)))
        if is_product(e) or str(type_of(given).dtype) == self.blocks.wide:
            return given
        if given not in self.wide:
            self.wide[given] = R.cast(given, dtype=self.blocks.wide)
        return self.wide[given]

    def _param(self, given: Expr) -> Var:
        if given not in self.params:
            self.params[given] = Var(f"p{len(self.params)}", type_of(given))
        return self.params[given]


def _warn_of_types(groups: _Groups) -> None:
    """Say why a model runs on the host, if it has products and the chip computes none of them."""
    refused = {e: why for e, why in groups.refused.items() if is_product(e)}
    if not refused or any(is_product(e) for e in groups.of):
        return
    first, why = next(iter(refused.items()))
    warnings.warn(
        f"{groups.blocks.chip.name} computes no part of the model: it has no product that fits the chip, and the first "
        f"one, {first.op.name}, stays on the host: {why}",
        RuntimeWarning,
        stacklevel=2,
    )


Offload = typed_pass(offload, name="Offload", opt_level=0)
