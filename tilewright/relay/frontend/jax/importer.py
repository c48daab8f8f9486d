"""From a function of JAX to a graph function and its parameters."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from typing import Any

import numpy as np

from ....ir.errors import FrontendError, TVMError
from ....ir.module import IRModule
from ....ir.span import at_node
from ...expr import Function, Tuple, TupleWrapper, Var
from ...interface import with_output_names
from ...transform.infer_type import infer_module
from ...ty import TensorType
from ..common.build import constant, converted, typed
from .capture import Program, captured, load_jax, place_of
from .control import CONTROL, inner_of, jaxprs_in
from .fold import folded
from .refused import REFUSED
from .symbols import Symbols
from .table import CONVERTERS, Refusal, Site
from .values import Value, array_of, is_uniform

# The files of converters, one for each family of primitives: importing one fills the table.
for _family in ("arrange", "convolve", "elementwise", "index", "order", "product", "reduction", "window"):
    import_module(f"{__package__}.{_family}")

_TYPES = frozenset(
    "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 bfloat16 float32 float64".split()
)
_FEW = 1 << 16  # most elements of a closed-over array of indices or flags, which converters may read


def from_jax(
    function: Any,
    *example_args: Any,
    dynamic: Mapping[str, Mapping[int, str] | Sequence[str | int | None]] | None = None,
    **example_kwargs: Any,
) -> tuple[IRModule, dict[str, Any]]:
    """The graph of a JAX function, for arguments like the examples, as `main` of a module, and its parameters.

        mod, params = relay.frontend.from_jax(lambda x: model.apply(weights, x), x)

    An example is an array or a `jax.ShapeDtypeStruct`, or a pytree of them; each of its arrays is an input (`x`,
    `batch.image`). Arrays that the function has closed over or that `functools.partial` binds are parameters. `dynamic`
    names sizes that stay dynamic: {"x": {0: "n"}}. A closed jaxpr is imported as it is, without examples.
    """
    load_jax()
    program = captured(function, example_args, example_kwargs, dynamic)
    return _Importer(program).run()


def supported_primitives() -> list[str]:
    """The primitives that have a converter; calls such as `jit` are inlined."""
    return sorted({*CONVERTERS, *CONTROL})


class _Importer:
    """The import of one closed jaxpr into a graph function."""

    def __init__(self, program: Program) -> None:
        self.jax = load_jax()
        self.closed, self.names, self.results = program.jaxpr, program.inputs, program.results
        self.weights = program.weights
        self.literal = self.jax.extend.core.Literal
        self.symbols = Symbols()
        self.params: dict[str, Any] = {}
        self.param_vars: list[Var] = []
        self.folded: dict[Any, Value] = {}
        self.line = ""  # where the equation that is converted stands, or the call that it is part of
        self.path = ""  # the scopes around it: those of `jax.named_scope`, the modules of Flax
        self.constants: dict[int, tuple[Any, Value]] = {}  # the array is kept: its id stays its own

    def run(self) -> tuple[IRModule, dict[str, Any]]:
        self.report_unsupported()
        jaxpr = self.closed.jaxpr
        if not jaxpr.outvars:
            raise FrontendError("the function returns no array")
        inputs = [self.input(v, name) for v, name in zip(jaxpr.invars, self.names, strict=True)]
        made = [v.expr for v in self.walk(self.closed, [Value(v) for v in inputs])]
        body = made[0] if len(made) == 1 else Tuple(made)
        main = with_output_names(Function([*inputs, *self.param_vars], body), self.results)
        return infer_module(IRModule.from_expr(main)), self.params

    def input(self, var: Any, name: str) -> Var:
        try:
            return Var(name, self.kind(var.aval))
        except Refusal as error:
            raise FrontendError(f"input {name!r}: {error}") from error

    def kind(self, aval: Any) -> TensorType:
        name = str(getattr(aval, "dtype", aval))
        if name not in _TYPES:
            raise Refusal(f"elements of type {name} are not supported")
        return TensorType(self.symbols.sizes(aval.shape), name)

    # -- the jaxpr ---------------------------------------------------------------------------
    def walk(self, closed: Any, operands: Sequence[Value]) -> list[Value]:
        """The results of a closed jaxpr over some values."""
        jaxpr = closed.jaxpr
        env: dict[Any, Value] = dict(zip(jaxpr.invars, operands, strict=True))
        arrays = dict(zip(jaxpr.constvars, closed.consts, strict=True))

        def read(atom: Any) -> Value:
            if isinstance(atom, self.literal):
                return Value(known=array_of(atom.val, atom.aval.dtype))
            return self.constant(arrays[atom]) if atom in arrays else env[atom]

        for eqn in _live(jaxpr, self.literal):
            made = self.blamed(eqn, lambda eqn=eqn: self.equation(eqn, [read(a) for a in eqn.invars]))  # type: ignore[misc]
            env.update(zip(eqn.outvars, made, strict=True))
        return [read(a) for a in jaxpr.outvars]

    def constant(self, array: Any) -> Value:
        """A closed-over array: a parameter; of one element, or of a few integers, known at import."""
        if id(array) not in self.constants:
            self.constants[id(array)] = (array, self.stored(array_of(array)))
        return self.constants[id(array)][1]

    def stored(self, array: Any) -> Value:
        if str(array.dtype) not in _TYPES:
            raise FrontendError(
                f"a closed-over array has elements of type {array.dtype}, which are not supported"
            )
        if array.size == 1 or (array.dtype.kind in "iub" and array.size <= _FEW):
            return Value(known=array)
        name = self.weights.get(place_of(array), "")
        if not name or name in self.params or name in self.names:
            name = f"const_{len(self.params)}"
        data = constant(array).data
        self.params[name] = data
        self.param_vars.append(Var(name, TensorType(data.shape, data.dtype)))
        return Value(self.param_vars[-1])

    def equation(self, eqn: Any, values: list[Value]) -> list[Value]:
        name = eqn.primitive.name
        inner = inner_of(eqn)
        if inner is not None:
            return self.walk(inner, values)
        if name in CONTROL:
            return CONTROL[name](self, values, eqn.params)
        kinds = [self.kind(v.aval) for v in eqn.outvars]
        if len(kinds) == 1 and all(v.known is not None for v in values):
            array = folded(name, [v.known for v in values], eqn.params, kinds[0])
            if array is not None:
                return [self.shared(array)]
        made = CONVERTERS[name](Site(name, values, kinds), self.plain(eqn.params))
        if isinstance(made, TupleWrapper):
            made = [made[i] for i in range(len(made))]
        found = made if isinstance(made, (list, tuple)) else [made]
        return [self.fitted(e, kind) for e, kind in zip(found, kinds, strict=True)]

    def shared(self, array: Any) -> Value:
        """An array that is computed at import; equal large ones, such as the mask of each layer, are one constant."""
        if array.size <= _FEW or is_uniform(array):
            return Value(known=array)
        key = (array.shape, str(array.dtype), hashlib.sha256(array.tobytes()).digest())
        return self.folded.setdefault(key, Value(known=array))

    def plain(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Parameters with symbolic sizes as expressions."""
        return {name: self.size_in(value) for name, value in params.items()}

    def size_in(self, value: Any) -> Any:
        if isinstance(value, (tuple, list)) and not hasattr(value, "_fields"):
            return tuple(map(self.size_in, value))
        return self.symbols.size(value) if hasattr(value, "scope") or isinstance(value, np.integer) else value

    def fitted(self, made: Any, kind: TensorType) -> Value:
        """A result with the element type of JAX."""
        value = made if isinstance(made, Value) else Value(made)
        have = value.known if value.known is not None else typed(value.expr).checked_type
        sizes = [(a, b) for a, b in zip(have.shape, kind.shape) if isinstance(a, int) and isinstance(b, int)]
        if len(have.shape) != len(kind.shape) or any(a != b for a, b in sizes):
            raise Refusal(f"its converter returns {have} where JAX has {kind}; this is a bug in tilewright")
        return value if value.dtype == str(kind.dtype) else Value(converted(value.expr, str(kind.dtype)))

    # -- errors ------------------------------------------------------------------------------
    def report_unsupported(self) -> None:
        """Refuse the function if it has primitives without a converter: all of them at once."""
        count: Counter[str] = Counter()
        where: dict[str, str] = {}
        for eqn, line in self.equations(self.closed.jaxpr, ""):
            name = eqn.primitive.name
            if name not in CONVERTERS and name not in CONTROL and inner_of(eqn) is None:
                count[name] += 1
                where.setdefault(name, line)
        if not count:
            return
        lines = []
        for name, times in count.most_common():
            reason = f": {REFUSED[name]}" if name in REFUSED else ""
            lines.append(f"  {name} ×{times}, first at {where[name]}{reason}")
        text = "\n".join(lines)
        raise FrontendError(
            f"primitives of the function without a converter: {len(count)}\n{text}\nWrite the function without them"
        )

    def equations(self, jaxpr: Any, around: str) -> Iterator[tuple[Any, str]]:
        """The equations of a jaxpr and of the jaxprs within them, with their source lines."""
        for eqn in _live(jaxpr, self.literal):
            line = self.where(eqn) or around
            yield eqn, line
            if eqn.primitive.name in CONTROL or inner_of(eqn) is not None:
                for inner in jaxprs_in(eqn):
                    yield from self.equations(inner, line)

    def where(self, eqn: Any) -> str:
        """The source line of an equation; empty for one that JAX has cached without it."""
        return str(self.jax.extend.source_info_util.summarize(eqn.source_info))

    def blamed(self, eqn: Any, work: Callable[[], list[Value]]) -> list[Value]:
        """The result of `work`; an error names the primitive and its source line."""
        outer = self.line, self.path
        self.line = self.where(eqn) or self.line
        self.path = "/".join(filter(None, (self.path, str(eqn.source_info.name_stack))))
        inside = f" in {self.path}" if self.path else ""
        try:
            return self.named(f"{eqn.primitive.name}{inside} at {self.line}", work)
        finally:
            self.line, self.path = outer

    def named(self, label: str, work: Callable[[], list[Value]]) -> list[Value]:
        try:
            with at_node(label):
                return work()
        except FrontendError:
            raise
        except (Refusal, TVMError, ValueError, TypeError, RuntimeError) as error:
            raise FrontendError(f"{label}: {error}") from error
        except (IndexError, KeyError, AttributeError, AssertionError, ArithmeticError) as error:
            raise FrontendError(f"{label}: {type(error).__name__}: {error}") from error


def _live(jaxpr: Any, literal: type) -> list[Any]:
    """The equations that a result depends on, and those with effects."""
    wanted = {a for a in jaxpr.outvars if not isinstance(a, literal)}
    out = []
    for eqn in reversed(jaxpr.eqns):
        if eqn.effects or any(v in wanted for v in eqn.outvars):
            out.append(eqn)
            wanted.update(a for a in eqn.invars if not isinstance(a, literal))
    return out[::-1]
