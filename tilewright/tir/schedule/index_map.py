"""`tir.IndexMap`: a function from indices to indices, with its inverse and its text."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, NoReturn

from ...arith import (
    Analyzer,
    IterSplitExpr,
    IterSumExpr,
    detect_iter_map,
    eval_set,
    inverse_affine_iter_map,
)
from ...homes import home_of
from ...ir.dtype import DataType
from ...ir.errors import ScheduleError
from ...ir.expr import (
    Add,
    FloatImm,
    FloorDiv,
    FloorMod,
    IntImm,
    Max,
    Min,
    Mul,
    PrimExpr,
    Range,
    Sub,
    Var,
    const,
    const_value,
    convert,
)
from ...ir.functor import Mutator, substitute
from ...ir.ops import (
    add,
    cast,
    floordiv,
    floormod,
    greater_equal,
    less,
    logical_or,
    max_of,
    min_of,
    mul,
    neg,
    not_equal,
    sub,
)
from ...ir.printer_names import free_name
from ..analysis.elements import evaluated


class IndexMap:
    """A function from the indices of one layout to those of another: `lambda i, j: (i // 4, j, i % 4)`."""

    AXIS_SEPARATOR: ClassVar[str] = "axis_separator"

    def __init__(
        self,
        initial_indices: Sequence[Var],
        final_indices: Sequence[Any],
        inverse_index_map: IndexMap | None = None,
    ) -> None:
        self.initial_indices = tuple(initial_indices)
        self.final_indices = tuple(convert(e) for e in final_indices)
        self.inverse_index_map = inverse_index_map

    # -- making --------------------------------------------------------------------------------
    @staticmethod
    def from_func(
        mapping_function: Callable[..., Any],
        ndim: int | None = None,
        inverse_index_map: Callable[..., Any] | IndexMap | None = None,
        *,
        index_dtype: str = "int64",
    ) -> IndexMap:
        """The map that a Python function of index variables is."""
        made, separators = IndexMap.from_func_with_separators(
            mapping_function, ndim, inverse_index_map, index_dtype=index_dtype
        )
        if separators:
            raise ValueError(
                "the function returns IndexMap.AXIS_SEPARATOR, which is not an index; "
                "from_func_with_separators takes it"
            )
        return made

    @staticmethod
    def from_func_with_separators(
        mapping_function: Callable[..., Any],
        ndim: int | None = None,
        inverse_index_map: Callable[..., Any] | IndexMap | None = None,
        *,
        index_dtype: str = "int64",
    ) -> tuple[IndexMap, list[int]]:
        """The map, and before which of its indices the function put an axis separator."""
        variables, args, kwargs = _parameters(mapping_function, ndim, index_dtype)
        given = mapping_function(*args, **kwargs)
        finals: list[Any] = []
        separators: list[int] = []
        for item in given if isinstance(given, (list, tuple)) else [given]:
            if isinstance(item, str) and item == IndexMap.AXIS_SEPARATOR:
                separators.append(len(finals))
            else:
                finals.append(item)
        inverse = inverse_index_map
        if inverse is not None and not isinstance(inverse, IndexMap):
            inverse = IndexMap.from_func(inverse, ndim=len(finals), index_dtype=index_dtype)
        return IndexMap(variables, finals, inverse), separators

    def with_dtype(self, dtype: str) -> IndexMap:
        """The same map over indices of another type."""
        kind = DataType(dtype)
        if all(v.dtype is kind for v in self.initial_indices):
            return self
        table = {v: Var(v.name, kind) for v in self.initial_indices}
        walk = _Retype(table, kind)
        inverse = None if self.inverse_index_map is None else self.inverse_index_map.with_dtype(dtype)
        return IndexMap(list(table.values()), [walk.visit(e) for e in self.final_indices], inverse)

    # -- applying ------------------------------------------------------------------------------
    def map_indices(self, indices: Sequence[Any]) -> list[PrimExpr]:
        """The indices of the element at `indices` in the other layout."""
        given = [convert(i) for i in indices]
        if len(given) != len(self.initial_indices):
            raise ValueError(f"{self} takes {len(self.initial_indices)} indices, not {len(given)}")
        if not given:
            return list(self.final_indices)
        kind = given[0].dtype
        retyped = self.with_dtype(kind)
        table = {v: cast(kind, i) for v, i in zip(retyped.initial_indices, given, strict=True)}
        ana = Analyzer()
        return [ana.simplify(substitute(e, table)) for e in retyped.final_indices]

    def map_ranges(self, ranges: Sequence[Range]) -> list[Range]:
        """The box of the other layout that a box is mapped into."""
        if len(ranges) != len(self.initial_indices):
            raise ValueError(f"{self} takes {len(self.initial_indices)} ranges, not {len(ranges)}")
        if not ranges:
            return [Range.from_min_extent(e, const(1, e.dtype)) for e in self.final_indices]
        retyped = self.with_dtype(ranges[0].extent.dtype)
        domains = dict(zip(retyped.initial_indices, ranges, strict=True))
        found = detect_iter_map(retyped.final_indices, domains)
        if found.indices:
            return [_range_of(s) for s in found.indices]
        ana = Analyzer()
        out = []
        for e in retyped.final_indices:
            r = eval_set(e, domains, ana).as_range()
            if r is None:
                raise ValueError(f"there is no telling what range `{e}` takes")
            out.append(Range.from_min_extent(ana.simplify(r.min), ana.simplify(r.extent)))
        return out

    def map_shape(self, shape: Sequence[Any]) -> list[PrimExpr]:
        """The shape of the other layout."""
        ana = Analyzer()
        boxes = self.map_ranges([Range(d) for d in shape])
        for r in boxes:
            if ana.can_prove(less(r.min, const(0, r.min.dtype))):
                raise ValueError(f"{self} maps the shape {list(shape)} to indices below 0")
        return [ana.simplify(add(r.min, r.extent)) for r in boxes]

    def map_ndarray(self, arr_src: Any) -> Any:
        """The array in the other layout, NumPy's or on the device it is on; padding is zero."""
        import numpy as np

        on_device = isinstance(arr_src, home_of("arrays").NDArray)
        source = np.asarray(arr_src.numpy() if hasattr(arr_src, "numpy") else arr_src)
        out = np.zeros([int(const_value(d) or 0) for d in self.map_shape(source.shape)], source.dtype)
        places = dict(zip(self.initial_indices, np.indices(source.shape), strict=True))
        index = tuple(np.broadcast_to(evaluated(e, places), source.shape) for e in self.final_indices)
        out[index] = source
        return home_of("arrays").array(out, arr_src.device) if on_device else out

    def is_equivalent_to(self, other_map: IndexMap) -> bool:
        """Whether both map all indices to the same."""
        if len(self.initial_indices) != len(other_map.initial_indices):
            return False
        theirs = other_map.map_indices(self.initial_indices)
        if len(theirs) != len(self.final_indices):
            return False
        ana = Analyzer()
        return all(ana.can_prove_equal(a, b) for a, b in zip(self.final_indices, theirs, strict=True))

    # -- inverting -----------------------------------------------------------------------------
    def inverse(self, shape: Sequence[Any]) -> IndexMap:
        """The map back; it must be one to one and leave nothing out."""
        made, padding = self.non_surjective_inverse(shape)
        if const_value(padding) != 0:
            raise ValueError(
                f"{self} is not onto over the shape {_shape_text(shape)}: "
                f"nothing is mapped to where `{padding}`"
            )
        return made

    def non_surjective_inverse(self, shape: Sequence[Any]) -> tuple[IndexMap, PrimExpr]:
        """The map back, and the condition over its parameters that nothing is mapped to them (padding)."""
        ranges = [_as_range(d) for d in shape]
        if len(ranges) != len(self.initial_indices):
            raise ValueError(f"{self} takes {len(self.initial_indices)} dimensions, not {len(ranges)}")
        kind = ranges[0].extent.dtype if ranges else DataType("int32")
        forward = self.with_dtype(kind)
        outputs = [Var(f"axis{i}", kind) for i in range(len(forward.final_indices))]
        domains = dict(zip(forward.initial_indices, ranges, strict=True))
        back = forward._inverted(domains, outputs)
        ana = Analyzer()
        for v, r in zip(outputs, forward.map_ranges(ranges), strict=True):
            ana.bind_loop(v, const(0, kind), ana.simplify(add(r.min, r.extent)))
        values = [ana.simplify(back[v]) for v in forward.initial_indices]
        padding: PrimExpr = const(False, "bool")
        for value, r in zip(values, ranges, strict=True):
            padding = logical_or(padding, less(value, r.min))
            padding = logical_or(padding, greater_equal(value, add(r.min, r.extent)))
        again = dict(zip(forward.initial_indices, values, strict=True))
        for v, e in zip(outputs, forward.final_indices, strict=True):
            padding = logical_or(padding, not_equal(substitute(e, again), v))
        return IndexMap(outputs, values, self), ana.simplify(padding)

    def _inverted(self, domains: Mapping[Var, Range], outputs: Sequence[Var]) -> dict[Var, PrimExpr]:
        """The parameters in terms of the results; refused where two indices are mapped to one."""
        if self.inverse_index_map is not None:
            back = self.inverse_index_map.map_indices(outputs)
            return dict(zip(self.initial_indices, back, strict=True))
        found = detect_iter_map(self.final_indices, domains)
        if not found.indices:
            raise ValueError(f"{self} cannot be inverted: {(found.errors or ['it is not one to one'])[0]}")
        back_map = {v: r.min for v, r in domains.items()}
        back_map.update(inverse_affine_iter_map(found.indices, outputs))
        ana = Analyzer()
        for v, r in domains.items():
            ana.bind(v, r)
        forward = dict(zip(outputs, self.final_indices, strict=True))
        for v in self.initial_indices:
            if not ana.can_prove_equal(substitute(back_map[v], forward), v):
                raise ValueError(f"{self} maps several values of `{v.name}` to the same index")
        return back_map

    # -- text ----------------------------------------------------------------------------------
    def as_python(self) -> str:
        """The map as a Python lambda."""
        names: dict[Var, str] = {}
        for v in self.initial_indices:
            base = v.name if v.name.isidentifier() else "i"
            names[v] = free_name(base, names.values())
        body = ast.Tuple([_to_ast(e, names) for e in self.final_indices], ast.Load())
        return f"lambda {', '.join(names.values())}: {ast.unparse(body)}"

    @staticmethod
    def from_python(text: str, index_dtype: str = "int64") -> IndexMap:
        """The map that `as_python` wrote. Nothing is run: only arithmetic on the parameters is understood."""
        return _Parser(text, index_dtype).run()

    def __repr__(self) -> str:
        return self.as_python()

    __str__ = __repr__


def _parameters(
    function: Callable[..., Any], ndim: int | None, dtype: str
) -> tuple[list[Var], list[Var], dict[str, Var]]:
    """Variables for the parameters of a function; `*args` takes what is left of `ndim`."""
    known = inspect.signature(function).parameters.values()
    plain = [p.name for p in known if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    rest = next((p.name for p in known if p.kind is p.VAR_POSITIONAL), None)
    named = [p.name for p in known if p.kind is p.KEYWORD_ONLY]
    left = 0
    if rest is not None:
        if ndim is None:
            raise ValueError(f"ndim must be given: the function takes any number of indices (*{rest})")
        left = ndim - len(plain) - len(named)
    count = len(plain) + len(named) + max(left, 0)
    if left < 0 or (ndim is not None and count != ndim):
        raise ValueError(f"the function takes {count} indices, and there are {ndim}")
    first = [Var(name, dtype) for name in plain]
    more = [Var(f"{rest}_{i}", dtype) for i in range(left)]
    last = {name: Var(name, dtype) for name in named}
    return [*first, *more, *last.values()], [*first, *more], last


def _as_range(dim: Any) -> Range:
    return dim if isinstance(dim, Range) else Range(dim)


def _shape_text(shape: Sequence[Any]) -> str:
    sizes = [d.extent if isinstance(d, Range) and const_value(d.min) == 0 else d for d in shape]
    return f"({', '.join(str(d) for d in sizes)})"


def _range_of(s: IterSumExpr) -> Range:
    """The values that a fused sum of iterators takes."""
    ana = Analyzer()
    one = const(1, s.base.dtype)
    if not s.args:
        return Range.from_min_extent(s.base, one)
    (p,) = s.args
    assert isinstance(p, IterSplitExpr)
    reach = mul(sub(p.extent, one), p.scale)
    if ana.can_prove(less(p.scale, const(0, one.dtype))):
        return Range.from_min_extent(ana.simplify(add(s.base, reach)), ana.simplify(sub(one, reach)))
    return Range.from_min_extent(s.base, ana.simplify(add(reach, one)))


class _Retype(Mutator):
    """Integers of an expression in another type."""

    def __init__(self, table: Mapping[Var, Var], kind: DataType) -> None:
        self.table, self.kind = table, kind

    def visit_Var(self, n: Var) -> PrimExpr:
        return self.table[n] if n in self.table else cast(self.kind, n)

    def visit_IntImm(self, n: IntImm) -> PrimExpr:
        return n if n.dtype.is_bool else const(n.value, self.kind)


# ---------------------------------------------------------------------------- text
_BINARY: dict[type, ast.operator] = {
    Add: ast.Add(),
    Sub: ast.Sub(),
    Mul: ast.Mult(),
    FloorDiv: ast.FloorDiv(),
    FloorMod: ast.Mod(),
}
_OPERATORS: dict[type, Callable[[Any, Any], PrimExpr]] = {
    ast.Add: add,
    ast.Sub: sub,
    ast.Mult: mul,
    ast.FloorDiv: floordiv,
    ast.Mod: floormod,
}
_CALLS: dict[str, Callable[[Any, Any], PrimExpr]] = {"min": min_of, "max": max_of}


def _to_ast(e: PrimExpr, names: Mapping[Var, str]) -> ast.expr:
    if isinstance(e, Var) and e in names:
        return ast.Name(names[e], ast.Load())
    if isinstance(e, (IntImm, FloatImm)):
        value: Any = bool(e.value) if e.dtype.is_bool else e.value
        if not isinstance(value, bool) and value < 0:
            return ast.UnaryOp(ast.USub(), ast.Constant(-value))
        return ast.Constant(value)
    if e.__class__ in _BINARY:
        a, b = _to_ast(e.a, names), _to_ast(e.b, names)  # type: ignore[attr-defined]
        return ast.BinOp(a, _BINARY[e.__class__], b)
    if isinstance(e, (Min, Max)):
        name = "min" if isinstance(e, Min) else "max"
        args = [_to_ast(e.a, names), _to_ast(e.b, names)]
        return ast.Call(ast.Name(name, ast.Load()), args, [])
    return ast.Name(f"({e})", ast.Load())  # readable; from_python will say that it cannot take it


class _Parser:
    """Reads the text of a map."""

    def __init__(self, text: str, dtype: str) -> None:
        self.text, self.dtype = text, dtype
        self.names: dict[str, Var] = {}

    def run(self) -> IndexMap:
        try:
            tree = ast.parse(self.text.strip(), mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            self.fail("it is not a Python expression")
        if not isinstance(tree, ast.Lambda):
            self.fail("it is not a lambda")
        a = tree.args
        if a.vararg or a.kwarg or a.kwonlyargs or a.defaults or a.posonlyargs:
            self.fail("its parameters must be plain names")
        for p in a.args:
            self.names[p.arg] = Var(p.arg, self.dtype)
        body = tree.body.elts if isinstance(tree.body, (ast.Tuple, ast.List)) else [tree.body]
        return IndexMap(list(self.names.values()), [self.value(e) for e in body])

    def value(self, e: ast.expr) -> PrimExpr:
        if isinstance(e, ast.Name) and e.id in self.names:
            return self.names[e.id]
        if isinstance(e, ast.Constant) and isinstance(e.value, (int, float)):
            plain = isinstance(e.value, int) and not isinstance(e.value, bool)
            return const(e.value, self.dtype) if plain else const(e.value)
        if isinstance(e, ast.UnaryOp) and isinstance(e.op, ast.USub):
            return neg(self.value(e.operand))
        if isinstance(e, ast.BinOp) and type(e.op) in _OPERATORS:
            return _OPERATORS[type(e.op)](self.value(e.left), self.value(e.right))
        if isinstance(e, ast.Call) and isinstance(e.func, ast.Name) and e.func.id in _CALLS:
            if len(e.args) == 2 and not e.keywords:
                return _CALLS[e.func.id](self.value(e.args[0]), self.value(e.args[1]))
        self.fail(f"`{ast.unparse(e)}` is more than arithmetic on its parameters")

    def fail(self, why: str) -> NoReturn:
        raise ScheduleError(f"cannot read the index map {self.text!r}: {why}")
