"""Tensors and the operations that give them."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar
from weakref import WeakKeyDictionary

from ..arith import Analyzer
from ..ir import ops
from ..ir.dtype import DataType
from ..ir.equal import structural_equal
from ..ir.expr import (
    ExprOp,
    IntImm,
    IterVar,
    PrimExpr,
    ProducerLoad,
    Range,
    Reduce,
    Var,
    const,
    convert,
    whole,
)
from ..ir.functor import substitute
from ..ir.span import Span, user_span
from ..ir.stmt import Block, For, ForKind, Stmt
from ..tir.analysis.elements import determined_iterators
from ..tir.analysis.regions import get_block_read_write_region
from .broadcast import broadcast_indices, broadcast_shape
from .errors import blame, building, refuse, shown

# The variables made by te.reduce_axis: one that no reduction runs over is an error.
reduction_vars: WeakKeyDictionary[Var, None] = WeakKeyDictionary()


def unique_nodes(roots: Iterable[Any]) -> Iterator[Any]:
    """Every node below `roots` once, parents first; expressions may share parts many times over."""
    seen: set[int] = set()
    stack = list(roots)[::-1]
    while stack:
        n = stack.pop()
        if id(n) in seen:
            continue
        seen.add(id(n))
        yield n
        stack.extend(reversed(n.children()))


def checked_dtype(dtype: Any) -> DataType:
    """The data type of a tensor's elements."""
    try:
        kind = DataType(str(dtype) if isinstance(dtype, str) else _numpy_name(dtype))
    except ValueError as error:
        raise refuse(str(error)) from None
    if kind.code == "void":
        raise refuse(f"unknown data type {str(dtype)!r}")
    return kind


def _numpy_name(dtype: Any) -> str:
    """The name of a NumPy data type or scalar class."""
    return str(getattr(dtype, "name", None) or getattr(dtype, "__name__", dtype))


def checked_shape(shape: Any) -> tuple[PrimExpr, ...]:
    """The dimensions as integer expressions."""
    if isinstance(shape, (int, float, ExprOp)) or hasattr(shape, "__index__"):
        shape = (shape,)
    if isinstance(shape, str) or not hasattr(shape, "__iter__"):
        raise refuse(f"a shape is a tuple of dimensions, not {shown(shape)}")
    return tuple(_checked_dim(d, i) for i, d in enumerate(shape))


def _checked_dim(dim: Any, position: int) -> PrimExpr:
    dim = whole(dim)
    if not isinstance(dim, (bool, ExprOp)) and hasattr(dim, "__index__"):
        dim = const(operator.index(dim))
    if isinstance(dim, ExprOp) or hasattr(dim, "__prim_expr__"):
        made = convert(dim)
        if not made.dtype.is_integral:
            raise refuse(
                f"dimension {position} of the shape, `{made}`, is {made.dtype} and must be an integer"
            )
        if isinstance(made, IntImm) and made.value < 0:
            raise refuse(f"dimension {position} of the shape is negative: {made.value}")
        for n in unique_nodes([made]):
            if isinstance(n, ProducerLoad):
                raise refuse(
                    f"dimension {position} of the shape, `{made}`, depends on the elements of a tensor",
                    "pass the size as a te.var",
                )
        return made
    raise refuse(f"dimension {position} of the shape is {shown(dim)} and must be an integer")


def _same(a: Any, b: Any) -> bool:
    return a is b or structural_equal(a, b)


class Operation:
    """Something that gives one tensor or several: where they come from."""

    __slots__ = ("__weakref__", "attrs", "input_tensors", "name", "span", "tag")
    kind: ClassVar[str] = "te.operation"
    name: str
    tag: str
    attrs: dict[str, Any]
    input_tensors: tuple[Tensor, ...]
    span: Span | None

    def __init__(self, name: str, tag: str, attrs: Mapping[str, Any] | None) -> None:
        self.name, self.tag, self.attrs = name, tag, dict(attrs or {})
        self.input_tensors, self.span = (), user_span()

    @property
    def what(self) -> str:
        """The operation as errors name it."""
        return f"{self.kind} `{self.name}`"

    @property
    def num_outputs(self) -> int:
        return 1

    @property
    def axis(self) -> tuple[IterVar, ...]:
        """The iterators over the output, one for each dimension."""
        return ()

    @property
    def reduce_axis(self) -> tuple[IterVar, ...]:
        """The iterators that are reduced over."""
        return ()

    def output_shape(self, index: int) -> tuple[PrimExpr, ...]:
        raise NotImplementedError

    def output_dtype(self, index: int) -> DataType:
        raise NotImplementedError

    def output(self, index: int) -> Tensor:
        """The tensor that comes out at `index`."""
        if not 0 <= index < self.num_outputs:
            raise refuse(f"there is no output {index}; it has {self.num_outputs}", what=self.what)
        return Tensor(self.output_shape(index), self.output_dtype(index), self, index)

    @property
    def outputs(self) -> list[Tensor]:
        return [self.output(i) for i in range(self.num_outputs)]

    def same_as(self, other: object) -> bool:
        return self is other

    def __repr__(self) -> str:
        return f"{self.__class__.__name__}({self.name})"


class PlaceholderOp(Operation):
    """A tensor that is given."""

    __slots__ = ("dtype", "shape")
    kind = "te.placeholder"

    def __init__(self, name: str, shape: tuple[PrimExpr, ...], dtype: DataType) -> None:
        super().__init__(name, "", None)
        self.shape, self.dtype = shape, dtype

    def output_shape(self, index: int) -> tuple[PrimExpr, ...]:
        return self.shape

    def output_dtype(self, index: int) -> DataType:
        return self.dtype


class BaseComputeOp(Operation):
    """An operation over iterators."""

    __slots__ = ("_axis", "_reduce_axis")
    _axis: tuple[IterVar, ...]
    _reduce_axis: tuple[IterVar, ...]

    @property
    def axis(self) -> tuple[IterVar, ...]:
        return self._axis

    @property
    def reduce_axis(self) -> tuple[IterVar, ...]:
        return self._reduce_axis

    @property
    def inner_axis(self) -> tuple[IterVar, ...]:
        """The reduction axes that stay inside of the operation's block, where nothing schedules them: from the first on
        whose range depends on the point, such as that of a row of a sparse matrix."""
        return ()

    def output_shape(self, index: int) -> tuple[PrimExpr, ...]:
        return tuple(iv.dom.extent for iv in self._axis)


class ComputeOp(BaseComputeOp):
    """Each element by a rule: `body` at the point `axis`, one expression for each output.

    Reductions stand at the top of the body only; several outputs share one reduction.
    """

    __slots__ = ("_inner", "body")
    kind = "te.compute"
    _inner: tuple[IterVar, ...]

    def __init__(
        self,
        name: str,
        tag: str,
        attrs: Mapping[str, Any] | None,
        axis: Sequence[IterVar],
        body: Sequence[PrimExpr],
    ) -> None:
        super().__init__(name, tag, attrs)
        self._axis, self.body = tuple(axis), _over_boxes(axis, body)
        first = self.body[0]
        self._reduce_axis = first.axis if isinstance(first, Reduce) else ()
        self._inner = ()
        self._check_reductions()
        self.input_tensors = self._check_parts()

    @property
    def inner_axis(self) -> tuple[IterVar, ...]:
        return self._inner

    @property
    def num_outputs(self) -> int:
        return len(self.body)

    def output_dtype(self, index: int) -> DataType:
        return self.body[index].dtype

    def _error(self, reason: str, hint: str = "") -> Exception:
        return refuse(reason, hint, what=self.what, span=self.span)

    def _check_reductions(self) -> None:
        first = self.body[0]
        kinds = {isinstance(b, Reduce) for b in self.body}
        if len(kinds) > 1:
            raise self._error(
                "some of its outputs are reductions and some are not",
                "make one compute of the reductions and another of the rest",
            )
        if not isinstance(first, Reduce):
            return
        for i, other in enumerate(self.body):
            assert isinstance(other, Reduce)
            same = (
                len(other.axis) == len(first.axis)
                and all(a is b for a, b in zip(other.axis, first.axis))
                and _same(other.combiner, first.combiner)
                and _same(other.condition, first.condition)
                and len(other.source) == len(first.source)
                and all(_same(a, b) for a, b in zip(other.source, first.source))
            )
            if not same or len(self.body) != len(first.source):
                raise self._error(
                    f"output {i} and output 0 are different reductions"
                    if not same
                    else f"it has {len(self.body)} outputs and its reduction gives {len(first.source)}",
                    "several outputs must be the parts of one tuple reduction (te.comm_reducer), in order; "
                    "make a compute for each reduction otherwise",
                )
            if other.value_index != i:
                raise self._error(
                    f"output {i} is part {other.value_index} of the reduction; keep their order"
                )
        varied = [self._varies(k) for k in range(len(first.axis))]
        if True in varied:
            self._inner = first.axis[varied.index(True) :]

    def _varies(self, k: int) -> bool:
        """Whether the range of a reduction axis depends on the point, or on an axis before it."""
        iv, later = self._reduce_axis[k], {a.var for a in self._reduce_axis[k:]}
        own = {a.var for a in (*self._axis, *self._reduce_axis)}
        found = False
        for n in unique_nodes([iv.dom]):
            if isinstance(n, Var) and n in later:
                raise self._error(
                    f"the range of reduction axis `{iv.var.name}` depends on `{n.name}`, which is not an axis "
                    "before it",
                    "list the axes of the reduction in the order in which their ranges depend on each other",
                )
            found = found or isinstance(n, ProducerLoad) or (isinstance(n, Var) and n in own)
        return found

    def _check_parts(self) -> tuple[Tensor, ...]:
        """Nothing undefined below the top; the tensors that are read."""
        roots: list[PrimExpr] = []
        for b in self.body:
            roots += (*b.source, b.condition, *b.init) if isinstance(b, Reduce) else (b,)
        roots += [e for iv in self._inner for e in (iv.dom.min, iv.dom.extent)]
        bound = {iv.var for iv in (*self._axis, *self._reduce_axis)}
        inputs: dict[Tensor, None] = {}
        for n in unique_nodes(roots):
            if isinstance(n, ProducerLoad):
                inputs[n.producer] = None
            elif isinstance(n, Reduce):
                raise self._error(
                    "a reduction stands inside another expression; it must be the top level of its compute",
                    "give the reduction a te.compute of its own and use its result here",
                )
            elif isinstance(n, Var) and n not in bound and n in reduction_vars:
                raise self._error(
                    f"`{n.name}` is a reduction axis that no reduction here runs over",
                    f"reduce over it, as in te.sum(…, axis={n.name})",
                )
        return tuple(inputs)


def _over_boxes(axis: Sequence[IterVar], body: Sequence[PrimExpr]) -> tuple[PrimExpr, ...]:
    """Reductions whose range depends on the point, over the greatest range, with a condition.

    te.sum(X[k], axis=k)   for k from 0 to i < 10   ->   te.sum(X[k], axis=k, where=k < i)   for k from 0 to 10
    """
    first = body[0]
    # Only a range between constants has a greatest one.
    own = {iv.var for iv in axis if isinstance(iv.dom.min, IntImm) and isinstance(iv.dom.extent, IntImm)}
    if not isinstance(first, Reduce) or not any(_names_of(iv) & own for iv in first.axis):
        return tuple(body)
    ana = Analyzer()
    ana.bind_ranges({iv.var: iv.dom for iv in axis})
    table: dict[Var, Var] = {}
    axes: list[IterVar] = []
    where: PrimExpr = const(True)
    for iv in first.axis:
        end = ops.add(iv.dom.min, iv.dom.extent)
        low, high = ana.const_int_bound(iv.dom.min).min_value, ana.const_int_bound(end).max_value
        names = _names_of(iv)
        if not names or not names <= own or high <= low:
            axes.append(iv)
            continue
        made = IterVar(Range(low, high), Var(iv.var.name, iv.var.dtype), IterVar.CommReduce)
        reduction_vars[made.var] = None
        table[iv.var] = made.var
        axes.append(made)
        inside = ops.all(ops.greater_equal(made.var, iv.dom.min), ops.less(made.var, end))
        where = ops.logical_and(where, inside)
    if not table:
        return tuple(body)
    return tuple(
        b.replace(
            source=tuple(substitute(e, table) for e in b.source),
            axis=tuple(axes),
            condition=ops.logical_and(where, substitute(b.condition, table)),
        )
        if isinstance(b, Reduce)
        else b
        for b in body
    )


def _names_of(iv: IterVar) -> set[Var]:
    """The variables in the range of an axis; none if it depends on elements of a tensor, too."""
    found = list(unique_nodes([iv.dom]))
    return (
        set() if any(isinstance(n, ProducerLoad) for n in found) else {n for n in found if isinstance(n, Var)}
    )


class ExternOp(Operation):
    """Tensors made by a statement that the user wrote over buffers, which stand for those tensors."""

    __slots__ = ("_shapes", "body", "input_placeholders", "inputs", "output_placeholders")
    kind = "te.extern"

    def __init__(
        self,
        name: str,
        tag: str,
        attrs: Mapping[str, Any] | None,
        inputs: Sequence[Tensor],
        input_placeholders: Sequence[Any],
        output_placeholders: Sequence[Any],
        body: Stmt,
        shapes: Sequence[tuple[PrimExpr, ...]] | None = None,
    ) -> None:
        super().__init__(name, tag, attrs)
        self._shapes = [b.shape for b in output_placeholders] if shapes is None else list(shapes)
        self.inputs = self.input_tensors = tuple(inputs)
        self.input_placeholders, self.output_placeholders = (
            tuple(input_placeholders),
            tuple(output_placeholders),
        )
        self.body = body

    @property
    def num_outputs(self) -> int:
        return len(self.output_placeholders)

    def output_shape(self, index: int) -> tuple[PrimExpr, ...]:
        return self._shapes[index]

    def output_dtype(self, index: int) -> DataType:
        return self.output_placeholders[index].dtype  # type: ignore[no-any-return]


class HybridOp(ExternOp):
    """The loops of a hybrid script. Those around all that it does, as they are written, are its axes:

    for i in range(n):                          axis = i, j: a schedule may split, reorder, fuse and mark them
        for j in range(m):
            c[i, j] = a[i] * b[j]

    An axis is spatial if each of its iterations writes elements of its own; the iterations of another one keep their
    order.
    """

    __slots__ = ("_axis",)
    kind = "te.hybrid"

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        loops, body = list[For](), self.body
        while isinstance(body, For) and body.kind is ForKind.SERIAL:
            loops.append(body)
            body = body.body
        iters = [IterVar(n.dom, n.loop_var, IterVar.DataPar) for n in loops]
        block = Block(iters, (), (), self.name, body)
        reads, writes = (
            [r for r in each if r.buffer in self.output_placeholders]
            for each in get_block_read_write_region(block)
        )
        own = set.intersection({n.loop_var for n in loops}, *(determined_iterators(block, r) for r in writes))
        before = {r.buffer: r for r in reads}
        if any(w.buffer in before and not structural_equal(before[w.buffer], w) for w in writes):
            own = set()  # it reads what other iterations may write
        self._axis = tuple(iv if iv.var in own else IterVar(iv.dom, iv.var, IterVar.Ordered) for iv in iters)

    @property
    def axis(self) -> tuple[IterVar, ...]:
        return self._axis


class ScanOp(Operation):
    """Tensors whose first dimension is time: `init` at the start, then `update` from what came before."""

    __slots__ = ("init", "inputs", "scan_axis", "spatial_axis_", "state_placeholder", "update")
    kind = "te.scan"

    def __init__(
        self,
        name: str,
        tag: str,
        attrs: Mapping[str, Any] | None,
        scan_axis: IterVar,
        init: Sequence[Tensor],
        update: Sequence[Tensor],
        state_placeholder: Sequence[Tensor],
        inputs: Sequence[Tensor],
    ) -> None:
        super().__init__(name, tag, attrs)
        self.scan_axis = scan_axis
        self.init, self.update = tuple(init), tuple(update)
        self.state_placeholder, self.inputs = tuple(state_placeholder), tuple(inputs)
        self.input_tensors = (*self.init, *self.update)
        self.spatial_axis_ = tuple(
            IterVar(Range(0, dim), f"{name}.out{k}.i{d}", IterVar.Opaque)
            for k, state in enumerate(self.state_placeholder)
            for d, dim in enumerate(state.shape[1:], 1)
        )

    @property
    def num_outputs(self) -> int:
        return len(self.update)

    @property
    def axis(self) -> tuple[IterVar, ...]:
        return (self.scan_axis, *self.spatial_axis_)

    def output_shape(self, index: int) -> tuple[PrimExpr, ...]:
        return self.state_placeholder[index].shape

    def output_dtype(self, index: int) -> DataType:
        return self.update[index].dtype


class TensorComputeOp(BaseComputeOp):
    """A compute whose elements come in tiles, each from a call of a tensor intrinsic.

    The first `schedulable_ndim` axes run over the tiles, the others inside of one. `input_regions` are the parts of
    `inputs` that a call reads, and `scalar_inputs` the values of the intrinsic's scalar parameters.
    """

    __slots__ = ("input_regions", "inputs", "intrin", "scalar_inputs", "schedulable_ndim")
    kind = "te.compute"

    def __init__(
        self,
        name: str,
        tag: str,
        axis: Sequence[IterVar],
        reduce_axis: Sequence[IterVar],
        schedulable_ndim: int,
        intrin: Any,
        tensors: Sequence[Tensor],
        regions: Sequence[Sequence[Range]],
        scalar_inputs: Sequence[PrimExpr] = (),
        attrs: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(name, tag, attrs)
        self._axis, self._reduce_axis = tuple(axis), tuple(reduce_axis)
        self.schedulable_ndim, self.intrin = schedulable_ndim, intrin
        self.inputs = self.input_tensors = tuple(tensors)
        self.input_regions = tuple(tuple(r) for r in regions)
        self.scalar_inputs = tuple(scalar_inputs)

    @property
    def num_outputs(self) -> int:
        return len(self.intrin.buffers) - len(self.intrin.inputs)

    def output_dtype(self, index: int) -> DataType:
        return self.intrin.buffers[len(self.intrin.inputs) + index].dtype  # type: ignore[no-any-return]


class TensorSlice(ExprOp):
    """A tensor with some of its indices given: `A[i]` of a matrix, on the way to `A[i][j]`."""

    __slots__ = ("indices", "tensor")
    __hash__ = object.__hash__

    def __init__(self, tensor: Tensor, indices: tuple[Any, ...]) -> None:
        self.tensor, self.indices = tensor, indices

    def __getitem__(self, indices: Any) -> Any:
        more = indices if isinstance(indices, tuple) else (indices,)
        return self.tensor[(*self.indices, *more)]

    def __iter__(self) -> Any:
        raise refuse(f"`{self}` cannot be iterated over", f"its elements are {self}[i]")

    @property
    def dtype(self) -> DataType:
        return self.tensor.dtype

    def __prim_expr__(self) -> PrimExpr:
        return self.tensor(*self.indices)

    def asobject(self) -> PrimExpr:
        return self.__prim_expr__()

    def __repr__(self) -> str:
        return f"{self.tensor.name}[{', '.join(map(str, self.indices))}]"


def _as_index(tensor: Tensor, value: Any) -> PrimExpr:
    """An index as an integer expression."""
    if value.__class__ is int:
        return const(value)
    if isinstance(value, slice):
        raise refuse(
            f"`{tensor.name}` is indexed with a slice; an element has an index for each dimension",
            "a part is what a tensor intrinsic takes; otherwise make the part you want with te.compute",
        )
    if isinstance(value, bool) or not (isinstance(value, ExprOp) or hasattr(value, "item")):
        if isinstance(value, Tensor):
            raise refuse(f"`{tensor.name}` is indexed with the tensor `{value.name}`: index that one, too")
        raise refuse(f"`{tensor.name}` is indexed with {shown(value)}, which is not an integer")
    made = convert(value)
    if not made.dtype.is_integral:
        raise refuse(
            f"`{tensor.name}` is indexed with `{made}` of type {made.dtype}; an index is an integer",
            'convert it: .astype("int32")',
        )
    return made


class Tensor:
    """Output `value_index` of `op`: an array that need not exist yet.

    `A[i, j]`, `A[i][j]` and `A(i, j)` are its elements; operators on whole tensors work element by element
    with NumPy's broadcasting. `==` asks whether two are the same output of the same operation.
    """

    __slots__ = ("__weakref__", "dtype", "op", "shape", "value_index")
    __array_ufunc__ = None  # NumPy's arrays and scalars leave the operators to us.

    def __init__(self, shape: Sequence[Any], dtype: str, op: Operation, value_index: int) -> None:
        self.shape = tuple(convert(d) for d in shape)
        self.dtype, self.op, self.value_index = DataType(dtype), op, value_index

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def axis(self) -> tuple[IterVar, ...]:
        return self.op.axis

    @property
    def name(self) -> str:
        return self.op.name if self.op.num_outputs == 1 else f"{self.op.name}.v{self.value_index}"

    def __call__(self, *indices: Any) -> PrimExpr:
        if len(indices) != len(self.shape):
            raise self._wrong_count(indices)
        return ProducerLoad(self, tuple([_as_index(self, i) for i in indices]))

    def _wrong_count(self, indices: Sequence[Any]) -> Exception:
        n = len(self.shape)
        items = ", ".join(i.var.name if isinstance(i, IterVar) else str(i) for i in indices)
        return refuse(
            f"`{self.name}` has {n} dimension{'' if n == 1 else 's'} and is indexed with {len(indices)}: "
            f"{self.name}[{items}]"
        )

    def __getitem__(self, indices: Any) -> Any:
        items = tuple(indices) if isinstance(indices, (tuple, list)) else (indices,)
        if len(items) < len(self.shape) or any(isinstance(i, slice) for i in items):
            return TensorSlice(self, items)
        return self(*items)

    def __iter__(self) -> Any:
        raise refuse(
            f"`{self.name}` cannot be iterated over", "its elements are A[i]; its dimensions A.shape"
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Tensor) and self.op is other.op and self.value_index == other.value_index

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash((id(self.op), self.value_index))

    def __bool__(self) -> bool:
        raise refuse(
            f"tensor `{self.name}` has no truth value while the program is being written",
            "compare with None to see whether there is one; te.all, te.any and te.if_then_else take conditions",
        )

    def same_as(self, other: object) -> bool:
        """Whether `other` is the same output of the same operation."""
        return self == other

    def __repr__(self) -> str:
        return f"Tensor(shape=[{', '.join(map(str, self.shape))}], op.name={self.op.name})"

    def __tensor_operand__(self, f: Callable[[Any], PrimExpr]) -> Tensor:
        return elementwise(f, self)

    def astype(self, dtype: str) -> Tensor:
        """The tensor with its elements converted."""
        kind = checked_dtype(dtype)
        return elementwise(lambda x: ops.cast(kind, x), self, name="T_cast")

    def __neg__(self) -> Tensor:
        return elementwise(ops.neg, self, name="T_negative")

    def __pos__(self) -> Tensor:
        return self

    def __abs__(self) -> Tensor:
        return elementwise(ops.abs, self, name="T_abs")

    def __invert__(self) -> Tensor:
        return elementwise(ops.bitwise_not, self, name="T_bitwise_not")

    def __add__(self, other: Any) -> Tensor:
        return _operator(ops.add, self, other, "T_add")

    def __radd__(self, other: Any) -> Tensor:
        return _operator(ops.add, other, self, "T_add")

    def __sub__(self, other: Any) -> Tensor:
        return _operator(ops.sub, self, other, "T_subtract")

    def __rsub__(self, other: Any) -> Tensor:
        return _operator(ops.sub, other, self, "T_subtract")

    def __mul__(self, other: Any) -> Tensor:
        return _operator(ops.mul, self, other, "T_multiply")

    def __rmul__(self, other: Any) -> Tensor:
        return _operator(ops.mul, other, self, "T_multiply")

    def __truediv__(self, other: Any) -> Tensor:
        return _operator(ops.true_divide, self, other, "T_divide")

    def __rtruediv__(self, other: Any) -> Tensor:
        return _operator(ops.true_divide, other, self, "T_divide")

    def __floordiv__(self, other: Any) -> Tensor:
        return _operator(ops.floordiv, self, other, "T_floor_divide")

    def __rfloordiv__(self, other: Any) -> Tensor:
        return _operator(ops.floordiv, other, self, "T_floor_divide")

    def __mod__(self, other: Any) -> Tensor:
        return _operator(ops.floormod, self, other, "T_floor_mod")

    def __rmod__(self, other: Any) -> Tensor:
        return _operator(ops.floormod, other, self, "T_floor_mod")

    def __pow__(self, other: Any) -> Tensor:
        return _operator(ops.power, self, other, "T_power")

    def __rpow__(self, other: Any) -> Tensor:
        return _operator(ops.power, other, self, "T_power")

    def __lshift__(self, other: Any) -> Tensor:
        return _operator(ops.shift_left, self, other, "T_left_shift")

    def __rlshift__(self, other: Any) -> Tensor:
        return _operator(ops.shift_left, other, self, "T_left_shift")

    def __rshift__(self, other: Any) -> Tensor:
        return _operator(ops.shift_right, self, other, "T_right_shift")

    def __rrshift__(self, other: Any) -> Tensor:
        return _operator(ops.shift_right, other, self, "T_right_shift")

    def __and__(self, other: Any) -> Tensor:
        return _operator(ops.bitwise_and, self, other, "T_bitwise_and")

    def __rand__(self, other: Any) -> Tensor:
        return _operator(ops.bitwise_and, other, self, "T_bitwise_and")

    def __or__(self, other: Any) -> Tensor:
        return _operator(ops.bitwise_or, self, other, "T_bitwise_or")

    def __ror__(self, other: Any) -> Tensor:
        return _operator(ops.bitwise_or, other, self, "T_bitwise_or")

    def __xor__(self, other: Any) -> Tensor:
        return _operator(ops.bitwise_xor, self, other, "T_bitwise_xor")

    def __rxor__(self, other: Any) -> Tensor:
        return _operator(ops.bitwise_xor, other, self, "T_bitwise_xor")

    def __lt__(self, other: Any) -> Tensor:
        return _operator(ops.less, self, other, "T_less")

    def __le__(self, other: Any) -> Tensor:
        return _operator(ops.less_equal, self, other, "T_less_equal")

    def __gt__(self, other: Any) -> Tensor:
        return _operator(ops.greater, self, other, "T_greater")

    def __ge__(self, other: Any) -> Tensor:
        return _operator(ops.greater_equal, self, other, "T_greater_equal")


def _operator(f: Callable[..., PrimExpr], a: Any, b: Any, name: str) -> Any:
    for x in (a, b):
        scalar = isinstance(x, (Tensor, ExprOp, int, float)) or hasattr(x, "__prim_expr__")
        if not scalar and not (hasattr(x, "item") and getattr(x, "ndim", 1) == 0):
            return NotImplemented
    return elementwise(f, a, b, name=name)


def elementwise(f: Callable[..., PrimExpr], *operands: Any, name: str = "") -> Tensor:
    """`f` of each element; operands are tensors, which broadcast, and scalars."""
    name = name or f"T_{f.__name__}"
    tensors = [x for x in operands if isinstance(x, Tensor)]
    with building(f"te.compute `{name}`"):
        shape = tensors[0].shape
        for t in tensors[1:]:
            shape = broadcast_shape(shape, t.shape)
        axis = [IterVar(Range(0, dim), f"ax{i}", IterVar.DataPar) for i, dim in enumerate(shape)]
        at = [iv.var for iv in axis]
        values = [x(*broadcast_indices(x.shape, shape, at)) if isinstance(x, Tensor) else x for x in operands]
        try:
            body = f(*values)
        except (TypeError, ValueError, RuntimeError, ZeroDivisionError) as error:
            raise (blame(error) or error) from None
    tag = "elemwise" if len(tensors) == 1 else "broadcast"
    return ComputeOp(name, tag, None, axis, [body]).output(0)
