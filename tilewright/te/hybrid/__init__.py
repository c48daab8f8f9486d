"""Hybrid script: a Python function of loops over tensors, as one operation.

    @te.hybrid.script
    def outer(a, b):
        c = output_tensor((a.shape[0], b.shape[0]), a.dtype)
        for i in range(a.shape[0]):
            for j in range(b.shape[0]):
                c[i, j] = a[i] * b[j]
        return c

    C = outer(A, B)                      # tensors: an operation with these loops
    outer(numpy_a, numpy_b)              # arrays: run as Python runs it

A script that calls another one has its statements, and memory for its results.

Loops are `range`, `parallel`, `vectorize`, `unroll`, `const_range` (written out) and `bind("threadIdx.x", n)`, memory
is `output_tensor` and `allocate`. The loops over a range around all that the script does are the axes of its stage,
which a schedule splits, reorders, fuses and marks; loops further in are as they are written.
"""

from __future__ import annotations

import ast
import inspect
import operator
import textwrap
import types
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from ...absent import absent, attributes
from ...ir import ops
from ...ir.errors import TensorExpressionError
from ...ir.expr import IterVar, PrimExpr, StringImm, const, const_value
from ...ir.stmt import AssertStmt
from ...tir.ir_builder import BufferVar, IRBuilder, create
from ...tir.script.budget import OPERATORS
from ..operation import HYBRID, extern, thread_axis
from ..tensor import Tensor

_LOOPS = {
    "range": "serial",
    "serial": "serial",
    "parallel": "parallel",
    "vectorize": "vectorize",
    "unroll": "unroll",
}
_BINARY: dict[type, Callable[[Any, Any], Any]] = {
    **OPERATORS,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}
_DTYPES = ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
_FLOATS = ("float16", "float32", "float64")
_MATH = "abs ceil exp floor log popcount power round rsqrt sigmoid sqrt tanh likely ceildiv".split()


def script(pyfunc: Callable[..., Any]) -> Callable[..., Any]:
    """A decorator that turns a function of loops over tensors into an operation."""
    return _Script(pyfunc)


build = absent("te.hybrid.build")
__getattr__ = attributes(__name__)


class _Script:
    """A function of loops. Called with tensors it makes an operation; called with arrays it runs as Python."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self.__name__, self.__doc__ = function.__name__, function.__doc__

    def __call__(self, *args: Any) -> Any:
        if not any(_tensors(a) for a in args):
            return self._run(args)
        return _Operation(self._function, args).made()

    def _run(self, args: Sequence[Any]) -> Any:
        """The function as Python runs it, with the names of hybrid script."""
        from .runtime import HYBRID_GLOBALS

        f = self._function
        own = types.FunctionType(
            f.__code__, {**f.__globals__, **HYBRID_GLOBALS}, f.__name__, f.__defaults__, f.__closure__
        )
        return own(*args)


class _Scalar:
    """A variable of the function that is assigned: memory for one number."""

    def __init__(self, memory: BufferVar) -> None:
        self.memory = memory


class _Array:
    """A tensor or memory of the function, in the program."""

    def __init__(self, shape: Sequence[Any], dtype: Any, memory: Any, is_input: bool = False) -> None:
        self.shape, self.dtype, self.memory, self.is_input = tuple(shape), dtype, memory, is_input


class _Operation:
    """A function and its arguments, from which an operation is made."""

    def __init__(self, function: Callable[..., Any], args: Sequence[Any]) -> None:
        self.name = function.__name__
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
        found = next((n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)), None)
        if found is None:
            raise TensorExpressionError("te.hybrid.script: it takes a function that is written with def")
        self.tree = found
        self.names: dict[str, Any] = {}
        outside = inspect.getclosurevars(function)
        self.around: dict[str, Any] = {**outside.builtins, **outside.globals, **outside.nonlocals}
        params = [a.arg for a in found.args.args]
        if len(params) != len(args):
            raise TypeError(f"{self.name}() takes {len(params)} arguments, and {len(args)} are given")
        self.given = dict(zip(params, args, strict=True))
        self.tensors = [t for a in args for t in _tensors(a)]
        targets = [t for n in ast.walk(found) for t in _targets(n)]
        self.assigned = Counter(t.id for t in targets if isinstance(t, ast.Name))
        self.axes: dict[str, IterVar] = {}
        self.ib: IRBuilder = create()

    def wrong(self, n: Any, what: str) -> TensorExpressionError:
        line = getattr(n, "lineno", 1)
        return TensorExpressionError(f"te.hybrid.script `{self.name}`, line {line}: {what}")

    # -- the whole -----------------------------------------------------------------------------
    def made(self) -> Any:
        """The operation's tensors, in the order in which the function returns them."""
        names, outs = self._results()
        shapes, dtypes = [o.shape for o in outs], [o.dtype for o in outs]

        def body(ins: Sequence[Any], outs: Sequence[Any]) -> Any:
            self.ib, self.axes = create(), {}
            buffers = iter(ins)
            self.names = {
                n: _each_tensor(t, lambda _: self._array(next(buffers), True)) for n, t in self.given.items()
            }
            self.names |= {n: self._array(b) for n, b in zip(names, outs, strict=True)}
            self._statements(self.tree.body[:-1])
            return self.ib.get()

        return extern(shapes, self.tensors, body, name=self.name, dtype=dtypes, tag=HYBRID)

    def inlined(self, ib: IRBuilder, axes: dict[str, IterVar]) -> list[_Array]:
        """The statements as a part of another function, with memory for the results, which are returned."""
        names, outs = self._results()
        self.ib, self.axes, self.names = ib, axes, dict(self.given)
        for name, out in zip(names, outs, strict=True):
            self.names[name] = _Array(out.shape, out.dtype, ib.allocate(out.dtype, out.shape, name))
        self._statements(self.tree.body[:-1])
        return [self.names[name] for name in names]

    def _results(self) -> tuple[list[str], list[_Array]]:
        """The names that the function returns, and their shapes and types, without memory."""
        last = self.tree.body[-1]
        if not isinstance(last, ast.Return) or last.value is None:
            raise self.wrong(last, "it must end with a return of its output tensors")
        values = last.value.elts if isinstance(last.value, ast.Tuple) else [last.value]
        names = [v.id if isinstance(v, ast.Name) else "" for v in values]
        self.names = {
            n: _each_tensor(t, lambda t: _Array(t.shape, t.dtype, None)) for n, t in self.given.items()
        }
        declared: dict[str, _Array] = {}
        for n in ast.walk(self.tree):
            if not isinstance(n, ast.Assign):
                continue
            (target, *_) = n.targets
            if _called(n.value) == "output_tensor" and isinstance(target, ast.Name):
                shape, dtype = self._memory(n.value)[:2]
                declared[target.id] = _Array(shape, dtype, None)
            elif n in self.tree.body and (inner := self._inner(n.value)):
                self._take(target, inner._results()[1])
        if set(names) != set(declared):
            raise self.wrong(
                last, f"it returns {', '.join(names)}, and its output tensors are {', '.join(declared)}"
            )
        return names, [declared[n] for n in names]

    def _inner(self, call: Any) -> _Operation | None:
        """The call of another script, whose statements become a part of these."""
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
            return None
        function = self.around.get(call.func.id)
        if not isinstance(function, _Script):
            return None
        return _Operation(function._function, [self._value(a) for a in call.args])

    def _take(self, target: Any, results: list[_Array]) -> None:
        parts = target.elts if isinstance(target, ast.Tuple) else [target]
        names = [n.id for n in parts if isinstance(n, ast.Name)]
        if not len(names) == len(parts) == len(results):
            raise self.wrong(target, f"there are {len(results)} results, each of which is assigned to a name")
        self.names |= dict(zip(names, results, strict=True))

    def _array(self, buffer: Any, is_input: bool = False) -> _Array:
        return _Array(buffer.shape, buffer.dtype, self.ib.buffer_ptr(buffer), is_input)

    def _memory(self, call: Any) -> tuple[Any, str, str]:
        """Shape, type and scope that memory is asked with."""
        given = {
            name: self._value(v) for name, v in zip(("shape", "dtype", "scope"), call.args, strict=False)
        }
        given |= {k.arg: self._value(k.value) for k in call.keywords}
        shape = given.get("shape")
        if not isinstance(shape, (tuple, list)):
            raise self.wrong(call, "memory has a shape: output_tensor((n, m), 'float32')")
        return tuple(shape), str(given.get("dtype", "float32")), str(given.get("scope", "global"))

    # -- statements ------------------------------------------------------------------------------
    def _statements(self, statements: Sequence[ast.stmt]) -> None:
        for n in statements:
            visit = getattr(self, f"_do_{type(n).__name__}", None)
            if visit is None:
                raise self.wrong(n, f"{type(n).__name__} is not for hybrid script")
            visit(n)

    def _do_Expr(self, n: ast.Expr) -> None:
        if not isinstance(n.value, ast.Constant):
            raise self.wrong(n, "an expression does nothing here; assign it")

    def _do_Pass(self, n: ast.Pass) -> None:
        return

    def _do_Assert(self, n: ast.Assert) -> None:
        """A check of what is known now is done now; another one becomes a check of the program."""
        test = self._value(n.test)
        known = const_value(test) if isinstance(test, PrimExpr) else test
        if known is None:
            said = self._value(n.msg) if n.msg is not None else f"{self.name}: {ast.unparse(n.test)}"
            self.ib.emit(lambda rest: AssertStmt(test, StringImm(str(said)), rest))
        elif not known:
            raise self.wrong(n, f"this does not hold: {ast.unparse(n.test)}")

    def _certain(self, n: ast.expr, value: Any) -> Any:
        """A value that is known now."""
        known = const_value(value) if isinstance(value, PrimExpr) else value
        if known is None:
            raise self.wrong(n, f"{ast.unparse(n)} is not known when the operation is made")
        return known

    def _do_Assign(self, n: ast.Assign) -> None:
        if len(n.targets) != 1:
            raise self.wrong(n, "one name is assigned at a time")
        (target,) = n.targets
        kind = _called(n.value)
        if kind == "output_tensor":
            return
        if kind == "allocate" and isinstance(target, ast.Name):
            shape, dtype, scope = self._memory(n.value)
            made = self.ib.allocate(dtype, shape, target.id, scope=scope)
            self.names[target.id] = _Array(shape, dtype, made)
            return
        if inner := self._inner(n.value):
            self._take(target, inner.inlined(self.ib, self.axes))
            return
        self._store(target, self._value(n.value))

    def _do_AugAssign(self, n: ast.AugAssign) -> None:
        old = ast.copy_location(ast.parse(ast.unparse(n.target), mode="eval").body, n)
        self._store(n.target, _BINARY[type(n.op)](self._value(old), self._value(n.value)))

    def _store(self, target: Any, value: Any) -> None:
        if isinstance(target, ast.Subscript):
            array = self._look(target.value)
            if not isinstance(array, _Array):
                raise self.wrong(target, f"{ast.unparse(target.value)} is no memory")
            if array.is_input:
                what = f"{ast.unparse(target.value)} is an input of the operation, which cannot be written"
                raise self.wrong(target, f"{what}; write to an output_tensor or to allocated memory")
            array.memory[self._index(target)] = value
            return
        if not isinstance(target, ast.Name):
            raise self.wrong(target, "names and elements are assigned")
        if self.assigned[target.id] == 1 and not isinstance(value, PrimExpr):
            self.names[target.id] = value  # a constant
            return
        held = (
            value
            if isinstance(value, PrimExpr)
            else const(value, "float32" if isinstance(value, float) else "int32")
        )
        if not isinstance(self.names.get(target.id), _Scalar):
            self.names[target.id] = _Scalar(self.ib.allocate(str(held.dtype), (1,), target.id, scope="local"))
        self.names[target.id].memory[0] = held

    def _do_If(self, n: ast.If) -> None:
        condition = self._value(n.test)
        known = const_value(condition) if isinstance(condition, PrimExpr) else bool(condition)
        if known is not None:
            self._statements(n.body if known else n.orelse)
            return
        with self.ib.if_scope(condition):
            self._statements(n.body)
        if n.orelse:
            with self.ib.else_scope():
                self._statements(n.orelse)

    def _do_For(self, n: ast.For) -> None:
        kind = _called(n.iter)
        if not isinstance(n.target, ast.Name) or not isinstance(n.iter, ast.Call) or kind is None:
            raise self.wrong(n, "a loop runs over range, parallel, vectorize, unroll, const_range or bind")
        args = [self._value(a) for a in n.iter.args]
        before = self.names.get(n.target.id)
        if kind == "const_range":
            for number in range(*(int(self._certain(a, v)) for a, v in zip(n.iter.args, args, strict=True))):
                self.names[n.target.id] = number
                self._statements(n.body)
        elif kind == "bind":
            tag, extent = args
            axis = self.axes.get(tag)
            with self.ib.new_scope():
                if axis is None:
                    axis = self.axes[tag] = thread_axis(tag)
                    self.ib.scope_attr(axis, "thread_extent", extent)
                self.names[n.target.id] = axis.var
                self._statements(n.body)
        elif kind in _LOOPS and 1 <= len(args) <= 2:
            low, high = (0, args[0]) if len(args) == 1 else args
            with self.ib.for_range(low, high, n.target.id, kind=_LOOPS[kind]) as var:
                self.names[n.target.id] = var
                self._statements(n.body)
        else:
            raise self.wrong(n, f"there is no loop over {ast.unparse(n.iter)}; it has a beginning and an end")
        if before is not None:
            self.names[n.target.id] = before

    # -- expressions -----------------------------------------------------------------------------
    def _value(self, n: Any) -> Any:
        found = self._look(n)
        return found.memory[0] if isinstance(found, _Scalar) else found

    def _look(self, n: Any) -> Any:
        visit = getattr(self, f"_of_{type(n).__name__}", None)
        if visit is None:
            raise self.wrong(n, f"{ast.unparse(n)} is not for hybrid script")
        return visit(n)

    def _of_Constant(self, n: ast.Constant) -> Any:
        return n.value

    def _of_Name(self, n: ast.Name) -> Any:
        for names in (self.names, self.around):
            if n.id in names:
                return names[n.id]
        raise self.wrong(n, f"there is no name {n.id!r}")

    def _of_Tuple(self, n: ast.Tuple) -> Any:
        return tuple(self._value(v) for v in n.elts)

    _of_List = _of_Tuple

    def _of_Attribute(self, n: ast.Attribute) -> Any:
        return getattr(self._value(n.value), n.attr)

    def _index(self, n: ast.Subscript) -> tuple[Any, ...]:
        at = self._value(n.slice)
        return at if isinstance(at, tuple) else (at,)

    def _of_Subscript(self, n: ast.Subscript) -> Any:
        of = self._value(n.value)
        if isinstance(of, _Array):
            return of.memory[self._index(n)]
        for at in self._index(n):
            of = of[int(self._certain(n.slice, at))]
        return of

    def _of_BinOp(self, n: ast.BinOp) -> Any:
        return _BINARY[type(n.op)](self._value(n.left), self._value(n.right))

    def _of_UnaryOp(self, n: ast.UnaryOp) -> Any:
        value = self._value(n.operand)
        if isinstance(n.op, ast.Not):
            return ops.logical_not(value) if isinstance(value, PrimExpr) else not value
        return -value if isinstance(n.op, ast.USub) else value if isinstance(n.op, ast.UAdd) else ~value

    def _of_Compare(self, n: ast.Compare) -> Any:
        values = [self._value(v) for v in (n.left, *n.comparators)]
        if any(type(op) not in _BINARY for op in n.ops):
            raise self.wrong(n, f"{ast.unparse(n)} is not for hybrid script")
        return _joined(
            ops.logical_and, all, [_BINARY[type(op)](*values[i : i + 2]) for i, op in enumerate(n.ops)]
        )

    def _of_BoolOp(self, n: ast.BoolOp) -> Any:
        both = isinstance(n.op, ast.And)
        values = [self._value(v) for v in n.values]
        return _joined(ops.logical_and if both else ops.logical_or, all if both else any, values)

    def _of_IfExp(self, n: ast.IfExp) -> Any:
        condition, yes, no = (self._value(v) for v in (n.test, n.body, n.orelse))
        return (
            ops.if_then_else(condition, yes, no)
            if isinstance(condition, PrimExpr)
            else yes
            if condition
            else no
        )

    def _of_Call(self, n: ast.Call) -> Any:
        name, args = _called(n), [self._value(a) for a in n.args]
        if name in ("max", "min") and len(args) == 2:
            return (ops.max_of if name == "max" else ops.min_of)(*args)
        if name == "len":
            return len(args[0].shape if isinstance(args[0], _Array) else args[0])
        if name == "max_num_threads":
            from .runtime import max_num_threads

            return max_num_threads(*args)
        if name in _DTYPES or name in _FLOATS:
            return ops.cast(name, args[0]) if isinstance(args[0], PrimExpr) else const(args[0], name)
        if name in _MATH and name not in self.names:
            return getattr(ops, name)(*args)
        function = self._value(n.func)
        if not callable(function):
            raise self.wrong(n, f"{ast.unparse(n.func)} cannot be called")
        return function(*args, **{k.arg: self._value(k.value) for k in n.keywords if k.arg})


def _tensors(given: Any) -> list[Tensor]:
    """The tensors of an argument, which may be a list of them."""
    if isinstance(given, (list, tuple)):
        return [t for g in given for t in _tensors(g)]
    return [given] if isinstance(given, Tensor) else []


def _each_tensor(given: Any, f: Callable[[Tensor], Any]) -> Any:
    """An argument with another value in place of each tensor."""
    if isinstance(given, (list, tuple)):
        return [_each_tensor(g, f) for g in given]
    return f(given) if isinstance(given, Tensor) else given


def _targets(n: ast.AST) -> list[ast.expr]:
    if isinstance(n, ast.Assign):
        return n.targets
    return [n.target] if isinstance(n, ast.AugAssign) else []


def _called(n: Any) -> str | None:
    """The last name of what a call calls: `output_tensor`, also of `te.hybrid.output_tensor`."""
    if not isinstance(n, ast.Call):
        return None
    return (
        n.func.id
        if isinstance(n.func, ast.Name)
        else n.func.attr
        if isinstance(n.func, ast.Attribute)
        else None
    )


def _joined(together: Callable[..., Any], known: Callable[..., bool], values: Sequence[Any]) -> Any:
    if not any(isinstance(v, PrimExpr) for v in values):
        return known(values)
    out = values[0]
    for v in values[1:]:
        out = together(out, v)
    return out
