"""The driver: it orders the nodes of a graph, converts each, and reports errors in terms of the model.

model -> checked and ordered -> node by node: known at import? fold : convert -> Function, parameters
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from ....ir.errors import FrontendError, TVMError
from ....ir.expr import SizeVar
from ....ir.module import IRModule
from ....ir.span import at_node
from ....runtime.words import Numbering, Words
from ...expr import Expr, Function, Tuple, TupleWrapper, Var
from ...expr import var as new_var
from ...interface import with_output_names, with_words
from ...ty import MOST_DIMENSIONS, TensorType, tensor_fields
from ..common.build import adopted
from .bodies import body_of, defaults_of
from .build import typed
from .context import Misfit, NeedsValue, Node, Refusal, Value, find_converter
from .fold import fold
from .load import array_of, load_model, storage_dtype
from .strings import STRING, marked, refuse_work
from .survey import DEEPEST, MOST_NODES, ordered, refuse_endless, refuse_missing

# The files of converters, one for each family of operators: importing one fills the table.
for _family in (
    "math", "shape", "reduce", "nn", "norm", "index", "image", "quant", "rnn", "control", "scan", "sequence", "signal",
    "counting", "training", "random", "trees", "estimators", "microsoft", "microsoft_attention", "microsoft_quant",
):  # fmt: skip
    import_module(f"{__package__}.{_family}")

_GREATEST = 1 << 33  # most elements of one tensor
# The exceptions of a converter for an invalid node.
_STUMBLES = (
    ValueError,
    TypeError,
    IndexError,
    KeyError,
    AttributeError,
    ZeroDivisionError,
    AssertionError,
)
_OF_AN_OPERATOR = re.compile(r"[\w.]+: ")
_NARROW = range(17, 27)  # element types of ONNX that are stored as another


def from_onnx(
    model: Any,
    shape: Mapping[str, Sequence[Any]] | None = None,
    dtype: str | Mapping[str, str] = "float32",
    opset: int | None = None,
    freeze_params: bool = True,
    convert_config: Mapping[str, Any] | None = None,
    *,
    values: Mapping[str, Any] | None = None,
) -> tuple[IRModule, dict[str, Any]]:
    """The graph of an ONNX model (a ModelProto, its bytes or a path) as `main` of a module, and its parameters.

    With `freeze_params` the initialisers are constants of the graph and there are no parameters. Inputs in `values` are
    constants as well: fixing one that selects a branch (a sample rate, a mode) removes the branch.
    """
    proto, name, folder = load_model(model)
    work = Importer(proto, name, folder, freeze_params, convert_config or {})
    if opset is not None:
        work.opsets[""] = opset
    return work.run(dict(shape or {}), dtype, dict(values or {}))


class Importer:
    """One import: the opsets, the functions of the model, the parameters found so far."""

    def __init__(
        self, model: Any, name: str, folder: Path | None, freeze: bool, config: Mapping[str, Any]
    ) -> None:
        self.model, self.name, self.folder, self.freeze, self.config = model, name, folder, freeze, config
        self.opsets: dict[str, int] = {_domain(o.domain): o.version for o in model.opset_import} or {"": 1}
        for domain, version in self.opsets.items():
            if not 0 < version < 1 << 31:
                raise FrontendError(
                    f"{name}: opset {version} of domain {domain or 'ai.onnx'!r} does not exist"
                )
        self.functions = {(_domain(f.domain), f.name): f for f in model.functions}
        self.params: dict[str, Any] = {}
        self.param_vars: list[Var] = []
        self.sizes: dict[str, SizeVar] = {}
        self.path: list[str] = []  # the enclosing graphs and functions
        self.output_elems: list[int] = []
        self.output_counts: list[int] = []
        self.scopes: list[dict[str, Value | None]] = []
        self.count = 0  # number of nodes so far
        self.words = Numbering()  # the strings of the model
        self.string_inputs: list[str] = []
        self.fixed = False  # whether the user gave sizes that are dynamic in the model

    # -- the whole ---------------------------------------------------------------------------
    def run(
        self, shapes: dict[str, Any], dtype: str | Mapping[str, str], values: dict[str, Any]
    ) -> tuple[IRModule, dict[str, Any]]:
        graph = self.model.graph
        refuse_missing(self)
        refuse_endless(self)
        scope: dict[str, Value | None] = {}
        self.refuse_doubles(graph)
        self.read_initializers(graph, scope, top=True)
        inputs: list[Var] = []
        for info in graph.input:
            if info.name in scope:
                continue
            if info.name in values:
                scope[info.name] = self.given(info, values[info.name])
                continue
            scope[info.name] = self.input_of(info, shapes, dtype, inputs)
        known = [i.name for i in graph.input]
        for argument, names in (("shape", shapes), ("values", values)):
            unknown = sorted(set(names) - set(known))
            if unknown:
                raise FrontendError(
                    f"{self.name}: {argument}= names {unknown}, and the inputs of the model are {known}"
                )
        results = self.run_graph(graph, scope)
        self.output_counts = []
        flat: list[Any] = []
        result_names: list[str] = []
        for info, v in zip(graph.output, results, strict=True):
            found = self.flat(v)
            is_sequence = v is not None and v.items is not None
            self.output_counts.append(len(found) if is_sequence else -1)
            result_names += [f"{info.name}.{i}" for i in range(len(found))] if is_sequence else [info.name]
            flat += found
        body = flat[0] if len(flat) == 1 else Tuple(flat)
        if not flat:
            raise FrontendError(f"{self.name}: the graph has no outputs")
        used = [*inputs, *self.param_vars]
        main = with_output_names(Function(used, typed(body)), result_names)
        texts = [name for name, elem in zip(result_names, self.output_elems, strict=True) if elem == STRING]
        if texts or self.string_inputs:
            main = with_words(
                main, Words(tuple(self.words.words), frozenset(self.string_inputs), frozenset(texts))
            )
        return IRModule.from_expr(main), self.params

    def flat(self, value: Value | None) -> list[Expr]:
        """The tensors of an output; those of a sequence one after the other."""
        if value is None:
            raise FrontendError(f"{self.name}: an output of the graph is an empty optional")
        if value.items is not None:
            return [e for item in value.items for e in self.flat(item)]
        self.output_elems.append(value.elem)
        return [value.expr]

    def regroup(self, flat: list[Any]) -> list[Any]:
        """Results as the model has them: the tensors of a sequence in one list again."""
        out: list[Any] = []
        at = 0
        for count in self.output_counts:
            out.append(flat[at] if count < 0 else flat[at : at + count])
            at += max(count, 1) if count < 0 else count
        return out

    def given(self, info: Any, value: Any) -> Value | None:
        """An input whose value is fixed at import; None is an optional without a value."""
        if value is None:
            return None
        if isinstance(value, list):
            return Value(items=[Value(known=np.asarray(v)) for v in value])
        elem = info.type.tensor_type.elem_type
        if elem == STRING:
            return Value(known=self.words.encoded(value), elem=elem)
        if elem in _NARROW or not elem:
            return Value(known=np.asarray(value), elem=elem)
        stored = self.blamed(lambda: storage_dtype(elem), f"input {info.name!r}")
        return Value(known=np.asarray(value).astype(stored))

    def input_of(
        self, info: Any, shapes: dict[str, Any], dtype: str | Mapping[str, str], inputs: list[Var]
    ) -> Value:
        kind = info.type.WhichOneof("value")
        if kind == "optional_type" and info.type.optional_type.elem_type.HasField("tensor_type"):
            kind, inner = "tensor_type", type(info)()
            inner.name = info.name
            inner.type.CopyFrom(info.type.optional_type.elem_type)
            info = inner
        if kind != "tensor_type":
            raise FrontendError(
                f"{self.name}: input {info.name!r} is a {kind or 'thing without a type'}, not a tensor"
            )
        elem = info.type.tensor_type.elem_type
        if elem == 0:
            stored = dtype if isinstance(dtype, str) else dtype.get(info.name, "float32")
        elif elem == STRING:
            stored = "int64"
            self.string_inputs.append(info.name)
        else:
            stored = self.blamed(lambda: storage_dtype(elem), f"input {info.name!r}")
        found = self.sizes_of(info, shapes)
        if len(found) > MOST_DIMENSIONS:
            raise FrontendError(
                f"{self.name}: input {info.name!r} has {len(found)} dimensions, and {MOST_DIMENSIONS} are the most"
            )
        made = new_var(info.name, shape=found, dtype=stored)
        inputs.append(made)
        return Value(made, elem=elem if elem in _NARROW or elem == STRING else 0)

    def sizes_of(self, info: Any, shapes: dict[str, Any]) -> list[Any]:
        """The sizes of an input: those given, those in the model, a symbol for each that has a name there."""
        tensor = info.type.tensor_type
        if info.name in shapes:
            self.fixed |= any(not d.HasField("dim_value") or d.dim_value < 0 for d in tensor.shape.dim)
            return list(shapes[info.name])
        if not tensor.HasField("shape"):
            raise FrontendError(
                f"{self.name}: input {info.name!r} has no shape in the model: give shape={{…}}"
            )
        found: list[Any] = []
        for i, d in enumerate(tensor.shape.dim):
            if d.HasField("dim_value"):
                if d.dim_value < -1 or d.dim_value >= 1 << 31:
                    raise FrontendError(f"{self.name}: input {info.name!r} has a size of {d.dim_value}")
            if d.HasField("dim_value") and d.dim_value >= 0:
                found.append(int(d.dim_value))
            else:  # some writers have -1 for a size that is not known
                # "?" is not a name: some writers have it for every size that is not known
                label = d.dim_param if d.dim_param not in ("", "?") else f"{info.name}_{i}"
                if label not in self.sizes:
                    self.sizes[label] = SizeVar(_identifier(label), "int32")
                found.append(self.sizes[label])
        return found

    def refuse_doubles(self, graph: Any) -> None:
        """Refuse inputs or initialisers of one name; an initialiser may be the default of an input."""
        for what, named in (("inputs", graph.input), ("initialisers", graph.initializer)):
            doubled = sorted(name for name, k in Counter(v.name for v in named).items() if k > 1)
            if doubled:
                raise FrontendError(
                    f"{self.where()}: several {what} have the name {', '.join(map(repr, doubled))}: rename all but one"
                )

    def read_initializers(self, graph: Any, scope: dict[str, Value | None], top: bool) -> None:
        if graph.sparse_initializer:
            raise FrontendError(f"{self.name}: sparse initialisers are not supported")
        for tensor in graph.initializer:
            if tensor.data_type == STRING:
                codes, shape = self.words.encoded(list(tensor.string_data)), tuple(tensor.dims)
                if any(d < 0 for d in shape) or codes.size != math.prod(shape):
                    raise FrontendError(
                        f"{self.name}: the initialiser {tensor.name!r} has {codes.size} strings, "
                        f"and its shape is {shape}"
                    )
                scope[tensor.name] = Value(known=codes.reshape(shape), elem=STRING)
                continue
            found = self.blamed(lambda t=tensor: array_of(t, self.folder), "an initialiser")  # type: ignore[misc]
            elem = tensor.data_type if tensor.data_type in _NARROW else 0
            if top and not self.freeze:
                later = self.parameter(tensor.name, found)
            else:
                later = partial(adopted, found)
            scope[tensor.name] = Value(known=found, later=later, elem=elem)

    def parameter(self, name: str, array: Any) -> Callable[[], Expr]:
        """An initialiser, which becomes a parameter if it is read as a tensor."""

        def make() -> Expr:
            made = adopted(array)
            self.params[name] = made.data
            self.param_vars.append(Var(name, TensorType(made.data.shape, made.data.dtype)))
            return self.param_vars[-1]

        return make

    # -- graphs ------------------------------------------------------------------------------
    def run_graph(self, graph: Any, scope: dict[str, Value | None]) -> list[Value | None]:
        """The outputs of a graph whose outer names are in `scope`."""
        for node in ordered(graph.node, scope, self.where()):
            self.run_node(node, scope)
        return [self.lookup(o.name, scope, "the graph's output") for o in graph.output]

    def subgraph(self, n: Node, graph: Any, inputs: Sequence[Value | None]) -> list[Value | None]:
        """The outputs of a graph within a node (a branch, the body of a loop)."""
        if len(graph.input) > len(inputs):
            raise Refusal(f"graph {graph.name!r} takes {len(graph.input)} values and gets {len(inputs)}")
        scope = dict(self.scopes[-1])
        for info, value in zip(graph.input, inputs, strict=False):
            scope[info.name] = value
        self.enter(f"graph {graph.name!r} of {_label(n.proto)}")
        try:
            self.refuse_doubles(graph)
            self.read_initializers(graph, scope, top=False)
            return self.run_graph(graph, scope)
        finally:
            self.path.pop()

    def enter(self, what: str) -> None:
        if len(self.path) >= DEEPEST:
            raise FrontendError(f"{self.where()}: functions and graphs nest deeper than {DEEPEST}")
        self.path.append(what)

    def where(self) -> str:
        shown = (
            self.path
            if len(self.path) < 6
            else [*self.path[:2], f"… {len(self.path) - 4} more …", *self.path[-2:]]
        )
        return ": ".join([self.name, *shown])

    def lookup(self, name: str, scope: Mapping[str, Value | None], reader: str) -> Value | None:
        if name not in scope:
            raise FrontendError(
                f"{self.where()}: {reader} reads {name!r}, which is neither an input, an initialiser nor the output "
                "of a node before it"
            )
        return scope[name]

    def run_node(self, proto: Any, scope: dict[str, Value | None]) -> None:
        label = _label(proto)
        self.count += 1
        if self.count > MOST_NODES:
            raise FrontendError(
                f"{self.where()}: {label}: the model has more than {MOST_NODES} nodes with its loops unrolled"
            )
        inputs = [self.lookup(i, scope, label) if i else None for i in proto.input]
        self.scopes.append(scope)
        try:
            with at_node(label, self.name, proto.name or next(filter(None, proto.output), proto.op_type)):
                results = self.convert(proto, inputs)
        except (FrontendError, RecursionError) as error:
            raise self.blame(error, label) from error
        except (Refusal, TVMError, MemoryError, OverflowError) as error:
            raise self.blame(error, label) from error
        except _STUMBLES as error:
            raise self.blame(Refusal(_stumble(error, inputs)), label) from error
        finally:
            self.scopes.pop()
        if len(results) < len([o for o in proto.output if o]):
            raise FrontendError(
                f"{self.where()}: {label} has {len(proto.output)} outputs, and {len(results)} are known"
            )
        for name, value in zip(proto.output, results, strict=False):
            if name:
                scope[name] = value

    def convert(self, proto: Any, inputs: Sequence[Value | None]) -> list[Value | None]:
        """The outputs of one node."""
        domain = _domain(proto.domain)
        local = self.functions.get((domain, proto.op_type))
        if local is not None:
            return self.run_function(local, proto, inputs)
        n = Node(self, proto, inputs, self.opsets.get(domain, 1))
        refuse_work(n)
        folded = fold(n)
        if folded is not None:
            if any(v.symbolic for v in folded) and len(folded) == 1:
                folded[0]._later = lambda: self.build(n)[0].expr  # type: ignore[union-attr]
            return list(folded)
        return self.build(n)

    def build(self, n: Node) -> list[Value | None]:
        domain = _domain(n.domain)
        work = find_converter(domain, n.op_type, n.opset)
        if work is None:
            body = body_of(n)
            if body is None:
                raise Refusal("there is no converter for this operator")
            return self.run_function(body, n.proto, n.inputs, defaults_of(n))
        made = work(n)
        if isinstance(made, (Expr, Value)):
            made = [made]
        elif isinstance(made, TupleWrapper):
            made = [made[i] for i in range(len(made))]
        out = [e if e is None or isinstance(e, Value) else Value(e) for e in made]
        for v in out:
            if v is not None and v._expr is not None:
                _check_size(typed(v._expr).checked_type)
        return marked(n, out)

    def run_function(
        self, function: Any, proto: Any, inputs: Sequence[Value | None], defaults: Sequence[Any] = ()
    ) -> list[Value | None]:
        """The outputs of a function of the model, or of an operator that is defined by others."""
        self.enter(f"function {function.name}")
        kept, self.opsets = (
            self.opsets,
            {_domain(o.domain): o.version for o in function.opset_import} or self.opsets,
        )
        try:
            given = {a.name: a for a in (*defaults, *function.attribute_proto, *proto.attribute)}
            scope: dict[str, Value | None] = {}
            for i, name in enumerate(function.input):
                scope[name] = inputs[i] if i < len(inputs) else None
            for node in ordered(function.node, scope, self.where()):
                self.run_node(_with_attributes(node, given), scope)
            # A body may leave out what its call does not ask for.
            asked = [*proto.output, *[""] * len(function.output)]
            return [
                self.lookup(o, scope, "the function's output") if want or o in scope else None
                for o, want in zip(function.output, asked, strict=False)
            ]
        finally:
            self.opsets = kept
            self.path.pop()

    # -- attributes and errors -----------------------------------------------------------------
    def attributes(self, proto: Any) -> dict[str, Any]:
        """The attributes of a node as Python values; tensors as arrays, graphs as they are."""
        from onnx import AttributeProto as A

        out: dict[str, Any] = {}
        for a in proto.attribute:
            if a.type == A.TENSOR:
                found = (
                    array_of(a.t, self.folder)
                    if a.t.data_type != 8
                    else [s.decode("utf8", "replace") for s in a.t.string_data]
                )
                out[a.name] = Value(known=found, elem=a.t.data_type) if a.t.data_type in _NARROW else found
            elif a.type == A.STRING:
                out[a.name] = a.s.decode("utf8", "replace")
            elif a.type == A.STRINGS:
                out[a.name] = [s.decode("utf8", "replace") for s in a.strings]
            elif a.type in (A.INT, A.FLOAT, A.GRAPH):
                out[a.name] = {A.INT: a.i, A.FLOAT: a.f, A.GRAPH: a.g}[a.type]
            elif a.type in (A.INTS, A.FLOATS, A.GRAPHS):
                out[a.name] = list({A.INTS: a.ints, A.FLOATS: a.floats, A.GRAPHS: a.graphs}[a.type])
            elif a.type == A.TENSORS:
                out[a.name] = [array_of(t, self.folder) for t in a.tensors]
        return out

    def blame(self, error: Exception, label: str) -> FrontendError:
        """The error with the file and the node, unless it has them already."""
        if isinstance(error, FrontendError) and str(error).startswith(self.name):
            return error
        reason = str(error) or type(error).__name__
        made = NeedsValue(f"{self.where()}: {label}: {reason}") if isinstance(error, NeedsValue) else None
        if made is not None and isinstance(error, NeedsValue):
            made.tensor = error.tensor
            return made
        return Misfit(f"{self.where()}: {label}: {reason}")

    def blamed(self, work: Callable[[], Any], what: str) -> Any:
        try:
            return work()
        except FrontendError as error:
            raise FrontendError(f"{self.where()}: {what}: {error}") from None


def _stumble(error: Exception, inputs: Sequence[Value | None]) -> str:
    """The reason of a converter's failure: an operator's refusal, or its inputs."""
    text = str(error)
    if isinstance(error, (TypeError, ValueError)) and _OF_AN_OPERATOR.match(text):
        return text
    given = ", ".join("none" if v is None else _kind_of(v) for v in inputs)
    text = f"{type(error).__name__}: {text}" if text else type(error).__name__
    return f"its inputs ({given}) or attributes are invalid for the operator ({text})"


def _kind_of(value: Value) -> str:
    if value.items is not None:
        return "a sequence"
    try:
        return f"{value.dtype} {list(value.shape)}"
    except (Refusal, TVMError, *_STUMBLES):
        return "?"


def _check_size(kind: Any) -> None:
    """Refuse a tensor that is larger than memory: its attributes are damaged."""
    for field in tensor_fields(kind):
        sizes = [d for d in field.shape if isinstance(d, int)]
        if math.prod(sizes) > _GREATEST:
            raise Refusal(f"its result {field} would have {math.prod(sizes)} elements")


def _with_attributes(node: Any, given: Mapping[str, Any]) -> Any:
    """A node of a function with the attributes that it takes from the function's call."""
    if not _refers(node):
        return node
    made = type(node)()
    made.CopyFrom(node)
    del made.attribute[:]
    for a in node.attribute:
        if a.ref_attr_name:
            found = given.get(a.ref_attr_name)
            if found is not None:
                made.attribute.add().CopyFrom(found)
                made.attribute[-1].name = a.name
        else:
            made.attribute.add().CopyFrom(a)
            if a.HasField("g"):
                for i, inner in enumerate(a.g.node):
                    made.attribute[-1].g.node[i].CopyFrom(_with_attributes(inner, given))
    return made


def _refers(node: Any) -> bool:
    return any(a.ref_attr_name or (a.HasField("g") and any(map(_refers, a.g.node))) for a in node.attribute)


def _label(proto: Any) -> str:
    named = (
        f"{proto.op_type} {proto.name!r}" if proto.name else f"{proto.op_type} -> {', '.join(proto.output)}"
    )
    return f"node {named}" if not proto.domain else f"node {proto.domain}.{named}"


def _domain(name: str) -> str:
    return "" if name == "ai.onnx" else name


def _identifier(label: str) -> str:
    made = "".join(c if c.isalnum() else "_" for c in label)
    return made if made and not made[0].isdigit() else f"n_{made}"
