"""Passes that multiply with sparse weights: DenseToSparse, Conv2dToSparse, Conv2dToSparse2, SimplifyFCTranspose.

What they need of the values of the weights, `relay.analysis.sparse_dense` and `sparse_conv2d` find;
`relay.data_dep_optimization` runs both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .. import op as R
from ..analysis.sparse_weights import is_sparse_conv, sparse_form
from ..expr import Call, Constant, Expr, Function, Var, const
from ..ty import TensorType
from .rewriting import Mutator, is_call, type_of, typed_pass

# The variables that stand for a weight: values, columns, where each row begins.
Parts = tuple[Var, Var, Var]


def _variables(names: Sequence[Any], shapes: Sequence[Any], func: Function) -> dict[Var, Parts]:
    """The parameters of the weights of these names, and what is to stand for each.

    The shape of a weight is that of its values, then the number of columns, then the number of row pointers.
    """
    known = {p.name_hint: p for p in func.params}
    out: dict[Var, Parts] = {}
    for name, shape in zip(map(str, names), shapes, strict=True):
        if name not in known:
            raise ValueError(f"the function has no parameter {name!r}; it has {', '.join(known)}")
        *values, columns, begins = (int(d) for d in shape)
        old = known[name]
        out[old] = (
            Var(f"{name}.data", _tensor(values, old)),
            Var(f"{name}.indices", _tensor([columns], "int32")),
            Var(f"{name}.indptr", _tensor([begins], "int32")),
        )
    return out


def _tensor(shape: Sequence[int], like: Any) -> Any:
    return TensorType(tuple(shape), like if isinstance(like, str) else type_of(like).dtype)


class _Sparse(Mutator):
    """Calls whose weight is one of the variables, with the parts of the weight instead."""

    def __init__(self, weights: Mapping[Var, Parts]) -> None:
        super().__init__()
        self.weights = weights

    def made(self, call: Call, data: Any, parts: Parts) -> Expr | None:
        raise NotImplementedError

    def visit_call(self, call: Call) -> Any:
        weight = call.args[1] if len(call.args) == 2 else None
        if isinstance(weight, Var) and weight in self.weights:
            new = self.made(call, self.visit(call.args[0]), self.weights[weight])
            if new is not None:
                return new
        return super().visit_call(call)

    def over(self, func: Function) -> Function:
        """The function with the parts of each weight as parameters, where the weight was."""
        body = self.visit(func.body)
        if body is func.body:
            return func
        params = [q for p in func.params for q in self.weights.get(p, (p,))]
        return Function(params, body, None, func.type_params, func.attrs, func.span)


class _SparseDense(_Sparse):
    def made(self, call: Call, data: Any, parts: Parts) -> Expr | None:
        return R.nn.sparse_dense(data, parts) if is_call(call, R.nn.dense) else None


def dense_to_sparse(func: Function, weight_name: Sequence[Any], weight_shape: Sequence[Any]) -> Function:
    """Multiply with sparse weights where a dense layer has one of these.

    fn (%x, %w) { nn.dense(%x, %w) }   ->   fn (%x, %w.data, %w.indices, %w.indptr) { nn.sparse_dense(…) }
    """
    return _SparseDense(_variables(weight_name, weight_shape, func)).over(func)


class _SparseConv2d(_Sparse):
    def __init__(self, weights: Mapping[Var, Parts], layout: str, kernel_size: int) -> None:
        super().__init__(weights)
        self.layout, self.kernel_size = layout, kernel_size

    def made(self, call: Call, data: Any, parts: Parts) -> Expr | None:
        if not is_sparse_conv(call, self.layout, self.kernel_size):
            return None
        return R.nn.sparse_conv2d(data, parts, self.layout, self.kernel_size)


def conv2d_to_sparse(
    func: Function, weight_name: Sequence[Any], weight_shape: Sequence[Any], layout: str, kernel_size: int
) -> Function:
    """Convolve with sparse weights where a convolution has one of these.

    fn (%x, %w) { nn.conv2d(%x, %w) }   ->   fn (%x, %w.data, %w.indices, %w.indptr) { nn.sparse_conv2d(…) }
    """
    return _SparseConv2d(_variables(weight_name, weight_shape, func), layout, kernel_size).over(func)


class _SparseConstants(Mutator):
    def __init__(self, layout: str, kernel_size: int, blocksize: tuple[int, int], threshold: float) -> None:
        super().__init__()
        self.layout, self.kernel_size, self.blocksize, self.threshold = (
            layout,
            kernel_size,
            blocksize,
            threshold,
        )

    def visit_call(self, call: Call) -> Any:
        new = super().visit_call(call)
        if not is_sparse_conv(call, self.layout, self.kernel_size) or new.args[1].__class__ is not Constant:
            return new
        parts = sparse_form(new.args[1].data.numpy(), self.layout, self.blocksize, self.threshold)
        if parts is None:
            return new
        return R.nn.sparse_conv2d(new.args[0], tuple(map(const, parts)), self.layout, self.kernel_size)


def conv2d_to_sparse_constants(
    func: Function, layout: str, kernel_size: int, blocksize: Any, sparsity_threshold: float
) -> Function:
    """Convolve with sparse weights where a convolution has a constant weight of which enough is zero.

    nn.conv2d(%x, meta[…])   ->   nn.sparse_conv2d(%x, data, indices, indptr)
    """
    rows, columns = blocksize
    return _SparseConstants(layout, kernel_size, (rows, columns), sparsity_threshold).visit(func)


class _TransposedWeights(Mutator):
    def __init__(self, weights: Mapping[Var, Var]) -> None:
        super().__init__()
        self.weights = weights

    def visit_call(self, call: Call) -> Any:
        source = call.args[0] if is_call(call, R.transpose) else None
        found = self.weights.get(source) if isinstance(source, Var) else None
        return super().visit_call(call) if found is None else found


def simplify_fc_transpose(func: Function, target_weight_name: Sequence[Any]) -> Function:
    """Take weights transposed already, instead of transposing them.

    fn (%x, %w) { nn.dense(%x, transpose(%w)) }   ->   fn (%x, %w.T) { nn.dense(%x, %w.T) }
    """
    wanted = set(map(str, target_weight_name))
    weights = {
        p: Var(f"{p.name_hint}.T", _tensor(tuple(reversed(type_of(p).shape)), p))
        for p in func.params
        if p.name_hint in wanted
    }
    body = _TransposedWeights(weights).visit(func.body)
    if body is func.body:
        return func
    params = [weights.get(p, p) for p in func.params]
    return Function(params, body, None, func.type_params, func.attrs, func.span)


DenseToSparse = typed_pass(dense_to_sparse, name="DenseToSparse", opt_level=4)
Conv2dToSparse = typed_pass(conv2d_to_sparse, name="Conv2dToSparse", opt_level=4)
Conv2dToSparse2 = typed_pass(conv2d_to_sparse_constants, name="Conv2dToSparse2", opt_level=5)
SimplifyFCTranspose = typed_pass(simplify_fc_transpose, name="SimplifyFCTranspose", opt_level=4)
