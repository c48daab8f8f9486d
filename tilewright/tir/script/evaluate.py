"""Python expressions of a script, evaluated while parsing: names are looked up, operators build IR."""

from __future__ import annotations

import ast
import builtins
import operator
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from ...ir import ops
from ...ir.buffer import Buffer, BufferRegion
from ...ir.errors import ScriptError
from ...ir.expr import BufferLoad, IterVar, PrimExpr, Ramp, Range, const, const_value, convert
from ...ir.node import Node
from ...ir.printer_ranges import difference
from ...ir.serialize import check_kinds
from . import namespace
from .budget import OPERATORS, Budget
from .reach import Namespace, OutOfReach
from .regions import as_load
from .source import Source, near

_COMPARE: dict[type, tuple[Callable[[Any, Any], Any], Callable[..., PrimExpr] | None]] = {
    ast.Eq: (operator.eq, ops.equal),
    ast.NotEq: (operator.ne, ops.not_equal),
    ast.Lt: (operator.lt, ops.less),
    ast.LtE: (operator.le, ops.less_equal),
    ast.Gt: (operator.gt, ops.greater),
    ast.GtE: (operator.ge, ops.greater_equal),
    ast.Is: (operator.is_, None),
    ast.IsNot: (operator.is_not, None),
    ast.In: (lambda a, b: a in b, None),
    ast.NotIn: (lambda a, b: a not in b, None),
}
# Functions that take a slice of a buffer as a region; to all others it is a vector.
_TAKE_REGIONS = (
    namespace.reads,
    namespace.writes,
    namespace.match_buffer,
    namespace.realize,
)


def load_of(value: Any) -> Any:
    """A slice of a buffer as the vector it reads, in lists too; anything else as it is."""
    if isinstance(value, BufferRegion):
        return as_load(value)
    if value.__class__ in (list, tuple) and any(isinstance(v, (BufferRegion, list, tuple)) for v in value):
        return value.__class__(load_of(v) for v in value)
    return value


def _is_expr(value: Any) -> bool:
    return isinstance(value, (PrimExpr, IterVar))


class Evaluator:
    """Evaluates Python expressions in nested scopes over the names that surround the script."""

    def __init__(self, source: Source, outside: Mapping[str, Any]) -> None:
        self.source = source
        self.outside = outside
        self.scopes: list[dict[str, Any]] = [{}]

    @property
    def budget(self) -> Budget | None:
        """The budget of a text; None for a decorated function, which is the user's own code."""
        return None if self.source.reach is None else self.source.reach.budget

    # -- names -------------------------------------------------------------------------------
    @contextmanager
    def scope(self) -> Iterator[None]:
        self.scopes.append({})
        yield
        self.scopes.pop()

    def bind(self, name: str, value: Any) -> None:
        self.scopes[-1][name] = value

    def name(self, node: ast.Name) -> Any:
        for scope in reversed(self.scopes):
            if node.id in scope:
                return scope[node.id]
        if node.id == "range" and self.outside.get("range", range) is range:
            return namespace.plain_range
        if node.id in self.outside:
            return self.outside[node.id]
        if hasattr(builtins, node.id):
            return self._own(node) if self.source.reach is not None else getattr(builtins, node.id)
        known = [n for scope in self.scopes for n in scope] + list(self.outside)
        raise self.source.error(
            node,
            f"{node.id!r} is not defined here",
            near(node.id, known) or "a variable is made with n = T.int32(), a buffer with T.alloc_buffer",
        )

    def _own(self, node: ast.Name) -> Any:
        assert self.source.reach is not None
        try:
            return self.source.reach.builtin(node.id)
        except OutOfReach:
            raise self._out_of_reach(node) from None

    def _out_of_reach(self, node: ast.expr) -> ScriptError:
        return self.source.error(
            node,
            f"`{ast.unparse(node)}` is not accessible to a script given as text",
            "it sees the names of T and I and those in extra_vars: from_source(text, extra_vars={…})",
        )

    # -- dispatch ----------------------------------------------------------------------------
    def eval(self, node: ast.expr | None) -> Any:
        """The value of a Python expression; None of nothing."""
        if node is None:
            return None
        handler = getattr(self, f"_{type(node).__name__}", None)
        if handler is None:
            raise self.source.error(node, f"a script has no {type(node).__name__} expressions")
        try:
            if self.budget is None:
                return handler(node)
            self.budget.step()
            return self.budget.made(handler(node))
        except ScriptError:
            raise
        except Exception as bad:
            raise self.source.error(node, _reason(bad)) from bad

    def expr(self, node: ast.expr) -> PrimExpr:
        """The value of an expression, which must be an IR expression."""
        value = load_of(self.eval(node))
        try:
            return convert(value)
        except TypeError as bad:
            raise self.source.error(node, str(bad)) from None

    # -- leaves ------------------------------------------------------------------------------
    def _Constant(self, node: ast.Constant) -> Any:
        return node.value

    def _Name(self, node: ast.Name) -> Any:
        return self.name(node) if self.budget is None else self.budget.reuse(self.name(node))

    def _Attribute(self, node: ast.Attribute) -> Any:
        owner, reach = self.eval(node.value), self.source.reach
        try:
            if isinstance(owner, Namespace):
                return owner.find(node.attr)
            return getattr(owner, node.attr) if reach is None else reach.attribute(owner, node.attr)
        except OutOfReach:
            raise self._out_of_reach(node) from None
        except AttributeError as bad:
            text = str(bad)
            reason, _, hint = text.partition("; ")
            raise self.source.error(node, reason, hint) from None

    def _Tuple(self, node: ast.Tuple) -> Any:
        return tuple(self._items(node.elts))

    def _List(self, node: ast.List) -> Any:
        return self._items(node.elts)

    def _Set(self, node: ast.Set) -> Any:
        return set(self._items(node.elts))

    def _Dict(self, node: ast.Dict) -> Any:
        out: dict[Any, Any] = {}
        for k, v in zip(node.keys, node.values, strict=True):
            if k is None:
                out.update(self.eval(v))
            else:
                out[self.eval(k)] = self.eval(v)
        return out

    def _items(self, nodes: list[ast.expr]) -> list[Any]:
        out: list[Any] = []
        for n in nodes:
            if isinstance(n, ast.Starred):
                out.extend(self.eval(n.value))
                if self.budget is not None:
                    self.budget.check(len(out))
            else:
                out.append(self.eval(n))
        return out

    def _JoinedStr(self, node: ast.JoinedStr) -> str:
        parts = [str(self.eval(v)) for v in node.values]
        return "".join(parts) if self.budget is None else self.budget.method("", "join")(parts)

    def _FormattedValue(self, node: ast.FormattedValue) -> str:
        form = "" if node.format_spec is None else self.eval(node.format_spec)
        value = self.eval(node.value)
        if node.conversion != -1:
            value = {97: ascii, 114: repr}.get(node.conversion, str)(value)  # type: ignore[operator]
        return format(value, form) if self.budget is None else self.budget.format(value, form)

    # -- operators ---------------------------------------------------------------------------
    def _BinOp(self, node: ast.BinOp) -> Any:
        left, right = load_of(self.eval(node.left)), load_of(self.eval(node.right))
        if type(node.op) not in OPERATORS:
            raise self.source.error(node, f"a script has no {type(node.op).__name__} operator")
        operate = OPERATORS[type(node.op)]
        return (
            operate(left, right) if self.budget is None else self.budget.operate(type(node.op), left, right)
        )

    def _UnaryOp(self, node: ast.UnaryOp) -> Any:
        value = load_of(self.eval(node.operand))
        if isinstance(node.op, ast.Not):
            return ops.logical_not(value) if _is_expr(value) else not value
        if isinstance(node.op, ast.USub):
            return -value
        return +value if isinstance(node.op, ast.UAdd) else ~value

    def _BoolOp(self, node: ast.BoolOp) -> Any:
        both = isinstance(node.op, ast.And)
        out = load_of(self.eval(node.values[0]))
        for n in node.values[1:]:
            if not _is_expr(out) and bool(out) is not both:
                return out
            value = load_of(self.eval(n))
            if _is_expr(out) or _is_expr(value):
                out = ops.logical_and(out, value) if both else ops.logical_or(out, value)
            else:
                out = value
        return out

    def _Compare(self, node: ast.Compare) -> Any:
        left = load_of(self.eval(node.left))
        out: Any = None
        for op, n in zip(node.ops, node.comparators, strict=True):
            right = load_of(self.eval(n))
            plain, build = _COMPARE[type(op)]
            symbolic = build is not None and (_is_expr(left) or _is_expr(right))
            if any(x is None or isinstance(x, str) for x in (left, right)):
                symbolic = False
            one = build(left, right) if symbolic and build is not None else plain(left, right)
            if out is None:
                out = one
            else:
                out = ops.logical_and(out, one) if _is_expr(out) or _is_expr(one) else out and one
            left = right
        return out

    def _IfExp(self, node: ast.IfExp) -> Any:
        test = load_of(self.eval(node.test))
        if _is_expr(test):
            return ops.if_then_else(test, load_of(self.eval(node.body)), load_of(self.eval(node.orelse)))
        return self.eval(node.body if test else node.orelse)

    # -- calls -------------------------------------------------------------------------------
    def _Call(self, node: ast.Call) -> Any:
        function = self.eval(node.func)
        args = self._items(node.args)
        kwargs: dict[str, Any] = {}
        for k in node.keywords:
            if k.arg is None:
                kwargs.update(self.eval(k.value))
            else:
                kwargs[k.arg] = self.eval(k.value)
        if not callable(function):
            raise self.source.error(node, f"`{ast.unparse(node.func)}` is {function!r} and cannot be called")
        if not any(function is f for f in _TAKE_REGIONS):
            args = [load_of(a) for a in args]
            kwargs = {k: load_of(v) for k, v in kwargs.items()}
        result = function(*args, **kwargs)
        if self.source.reach is not None:
            self.source.reach.called(function, result)
            if isinstance(function, type) and isinstance(result, Node):
                check_kinds(result)
        return result

    def _Lambda(self, node: ast.Lambda) -> Any:
        names = [a.arg for a in node.args.args]
        held = [dict(s) for s in self.scopes]
        source, outside = self.source, self.outside

        def function(*values: Any) -> Any:
            saved = self.source, self.outside, self.scopes
            self.source, self.outside = source, outside
            self.scopes = [*held, dict(zip(names, values, strict=True))]
            try:
                return self.eval(node.body)
            finally:
                self.source, self.outside, self.scopes = saved

        # `inspect.signature` reads the names of the parameters from here.
        import inspect

        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        function.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
            [inspect.Parameter(n, kind) for n in names]
        )
        return function

    # -- subscripts --------------------------------------------------------------------------
    def _Slice(self, node: ast.Slice) -> slice:
        return slice(self.eval(node.lower), self.eval(node.upper), self.eval(node.step))

    def _Subscript(self, node: ast.Subscript) -> Any:
        owner = self.eval(node.value)
        index = self.eval(node.slice)
        if isinstance(owner, Buffer):
            return self.element(owner, index, node)
        if isinstance(index, PrimExpr) and const_value(index) is not None:
            index = int(const_value(index))  # type: ignore[arg-type]
        return owner[index]

    def element(self, buffer: Buffer, index: Any, node: ast.AST) -> BufferLoad | BufferRegion:
        """`buffer[index]`: a load, or a region if there is a slice without a step in it."""
        items = tuple(index) if isinstance(index, (tuple, list)) else (index,)
        if len(items) != len(buffer.shape):
            shape = ", ".join(map(str, buffer.shape))
            raise self.source.error(
                node,
                f"buffer {buffer.name} has {len(buffer.shape)} dimensions ({shape}) "
                f"and is indexed with {len(items)}",
                f"write {buffer.name}[{', '.join(list('ijklmn')[: len(buffer.shape)])}], one index each",
            )
        items = tuple(load_of(i) for i in items)
        if not any(isinstance(i, (slice, Range)) for i in items):
            return BufferLoad(buffer, items)
        last = items[-1]
        stepped = isinstance(last, slice) and last.step is not None
        if stepped and not any(isinstance(i, slice) for i in items[:-1]):
            return BufferLoad(buffer, (*items[:-1], _ramp(last, buffer.shape[-1])))
        ranges = []
        for item, dim in zip(items, buffer.shape, strict=True):
            if isinstance(item, slice):
                low, high = ops.match(
                    convert(0 if item.start is None else item.start),
                    dim if item.stop is None else convert(item.stop),
                )
                ranges.append(Range.from_min_extent(low, difference(high, low)))
            elif isinstance(item, Range):
                ranges.append(item)
            else:
                at = convert(item)
                ranges.append(Range.from_min_extent(at, const(1, at.dtype)))
        return BufferRegion(buffer, tuple(ranges))

    # -- comprehensions ----------------------------------------------------------------------
    def _ListComp(self, node: ast.ListComp) -> list[Any]:
        return list(self._generate(node.generators, lambda: self.eval(node.elt)))

    def _GeneratorExp(self, node: ast.GeneratorExp) -> list[Any]:
        return list(self._generate(node.generators, lambda: self.eval(node.elt)))

    def _SetComp(self, node: ast.SetComp) -> set[Any]:
        return set(self._generate(node.generators, lambda: self.eval(node.elt)))

    def _DictComp(self, node: ast.DictComp) -> dict[Any, Any]:
        return dict(self._generate(node.generators, lambda: (self.eval(node.key), self.eval(node.value))))

    def _generate(self, parts: list[ast.comprehension], element: Callable[[], Any]) -> Iterator[Any]:
        if not parts:
            yield element()
            return
        first = parts[0]
        for value in self.eval(first.iter):
            with self.scope():
                self.unpack(first.target, value)
                if all(self.eval(test) for test in first.ifs):
                    yield from self._generate(parts[1:], element)

    def unpack(self, target: ast.expr, value: Any) -> None:
        """Bind names to a Python value."""
        if isinstance(target, ast.Name):
            self.bind(target.id, value)
        elif isinstance(target, (ast.Tuple, ast.List)):
            values = list(value)
            if len(values) != len(target.elts):
                raise self.source.error(target, f"{len(target.elts)} names for {len(values)} values")
            for t, v in zip(target.elts, values, strict=True):
                self.unpack(t, v)
        else:
            raise self.source.error(target, "only names can be bound here")


def _ramp(item: slice, dim: PrimExpr) -> Ramp:
    start = convert(0 if item.start is None else item.start)
    stop = dim if item.stop is None else convert(item.stop)
    step = convert(item.step)
    size, by = const_value(difference(*ops.match(stop, start))), const_value(step)
    if not isinstance(size, int) or not isinstance(by, int) or by <= 0:
        raise ValueError("a slice with a step needs a constant length and a positive constant step")
    return Ramp(start, const(by, start.dtype), -(-size // by))


def _reason(bad: Exception) -> str:
    text = str(bad)
    if isinstance(bad, RecursionError):
        text = "the expression is nested too deeply"
    return text if text else type(bad).__name__
