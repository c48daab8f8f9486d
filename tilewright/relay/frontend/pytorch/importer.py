"""From a program of torch.export to a graph function and its parameters."""

from __future__ import annotations

import math
import operator
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from types import FunctionType
from typing import Any

from ....ir.errors import FrontendError, TVMError
from ....ir.expr import PrimExpr
from ....ir.module import IRModule
from ....ir.span import at_node
from ...expr import Expr, Function, If, Tuple, TupleGetItem, TupleWrapper, Var
from ...interface import with_output_names
from ...transform.infer_type import infer_module
from ...ty import TensorType
from ..common.build import typed
from .build import array_of, cast, constant, dtype_name
from .capture import as_program, decomposed, described, parameter_names, place, result_names
from .symbols import Symbols
from .table import CONVERTERS, Refusal, Site, find

# The files of converters, one for each family of operators: importing one fills the table.
for _family in (
    "activation", "arrange", "backward", "convolve", "elementwise", "index", "interpolate", "norm", "pool", "product",
    "random", "recurrent", "reduction",
):  # fmt: skip
    import_module(f"{__package__}.{_family}")

# Results of at most this many elements are computed at import where all that goes in is known.
_FOLD_LIMIT = 1 << 22
Custom = Callable[[list[Any], list[str]], Any]


def from_pytorch(
    script_module: Any,
    input_infos: Sequence[Any] = (),
    custom_convert_map: Mapping[str, Any] | None = None,
    default_dtype: str = "float32",
    use_parser_friendly_name: bool = False,
    keep_quantized_weight: bool = False,
    export_renamed_c_graph_path: str | None = None,
) -> tuple[IRModule, dict[str, Any]]:
    """The graph of a traced module, or of a program of torch.export, as `main` of a module, and its parameters.

        mod, params = relay.frontend.from_pytorch(torch.jit.trace(net, x), [("x", (1, 3, 224, 224))])

    An input of another type than it was traced with, or than `default_dtype` if there is no trace, is described as
    ("ids", ((1, 128), "int64")).
    """
    if export_renamed_c_graph_path is not None:
        raise FrontendError("export_renamed_c_graph_path: there is no graph with renamed values to write")
    infos = described(script_module, input_infos, default_dtype)
    program = as_program(script_module, infos, default_dtype)
    names = [name for name, _ in infos]
    known = {} if program is script_module else parameter_names(script_module)
    made = _Importer(program, names, known, custom_convert_map or {}, use_parser_friendly_name)
    made.check_inputs([(name, *kind) for name, kind in infos])
    return made.run()


def from_exported_program(
    exported_program: Any, custom_convert_map: Mapping[str, Any] | None = None, state: bool = False
) -> tuple[IRModule, dict[str, Any]]:
    """The graph of a program of torch.export as `main` of a module, and its parameters.

    With `state`, the new values of the buffers and inputs that the program changes are results too, by their names.
    """
    import torch

    if not isinstance(exported_program, torch.export.ExportedProgram):
        raise FrontendError(
            f"from_exported_program takes what torch.export.export returns, not {type(exported_program).__name__}"
        )
    return _Importer(exported_program, [], {}, custom_convert_map or {}, False).run(state)


def supported_operators() -> list[str]:
    """The operators of ATen, and single overloads, that have a converter; others are decomposed into these."""
    return sorted(CONVERTERS)


class _Known:
    """A tensor whose values are known at import."""

    __slots__ = ("_expr", "tensor")

    def __init__(self, tensor: Any) -> None:
        self.tensor = tensor
        self._expr: Expr | None = None

    @property
    def expr(self) -> Expr:
        if self._expr is None:
            self._expr = constant(array_of(self.tensor))
        return self._expr


class _Importer:
    """The import of one program into a graph function."""

    def __init__(
        self,
        program: Any,
        names: Sequence[str],
        places: Mapping[Any, str],
        custom: Mapping[str, Custom],
        plain_names: bool,
    ) -> None:
        self.program = decomposed(program, custom)
        self.names, self.places, self.custom, self.plain_names = list(names), places, custom, plain_names
        self.symbols = Symbols()
        self.inputs: list[Var] = []
        self.params: dict[str, Any] = {}
        self.param_vars: list[Var] = []

    def run(self, state: bool = False) -> tuple[IRModule, dict[str, Any]]:
        graph = self.program.graph_module.graph
        self.report_unsupported(self.program.graph_module)
        env: dict[Any, Any] = {}
        self.bind_inputs(graph, env)
        outputs = self.walk(self.program.graph_module, env)
        specs = self.program.graph_signature.output_specs
        if not state:
            _warn_of_state("buffers", [str(s.target) for s in specs if s.kind.name == "BUFFER_MUTATION"])
            _warn_of_state("inputs", [str(s.target) for s in specs if s.kind.name == "USER_INPUT_MUTATION"])
        wanted = [
            value
            for value, spec in zip(outputs, specs, strict=True)
            if spec.kind.name in ("USER_OUTPUT", "LOSS_OUTPUT")
        ]
        named = zip(wanted, result_names(self.program, len(wanted)), strict=True)
        kept = [(self.expr(v), name) for v, name in named if v is not None]
        held = {v.name_hint for v in (*self.inputs, *self.param_vars)} if state else set()
        kept += [
            (self.expr(value), str(spec.target))
            for value, spec in zip(outputs, specs, strict=True)
            if spec.kind.name in ("BUFFER_MUTATION", "USER_INPUT_MUTATION") and spec.target in held
        ]
        if not kept:
            raise FrontendError("the model returns no tensor")
        body = kept[0][0] if len(kept) == 1 else Tuple([e for e, _ in kept])
        main = Function([*self.inputs, *self.param_vars], body)
        main = with_output_names(main, [name for _, name in kept])
        return infer_module(IRModule.from_expr(main)), self.params

    # -- inputs ------------------------------------------------------------------------------
    def bind_inputs(self, graph: Any, env: dict[Any, Any]) -> None:
        """Inputs and parameters as variables, constants as what is known."""
        specs = self.program.graph_signature.input_specs
        users = [s for s in specs if s.kind.name == "USER_INPUT" and s.arg.name]
        if self.names and len(self.names) != len(users):
            raise FrontendError(
                f"the model takes {len(users)} inputs and {len(self.names)} are described: {', '.join(self.names)}"
            )
        names = iter(self.names)
        places = [node for node in graph.nodes if node.op == "placeholder"]
        for node, spec in zip(places, specs, strict=True):
            if spec.kind.name == "USER_INPUT":
                env[node] = self.input(node, next(names, node.name))
            elif spec.kind.name in ("PARAMETER", "BUFFER", "CONSTANT_TENSOR"):
                env[node] = self.stored(node, spec)
            else:
                raise FrontendError(f"input {node.name}: inputs of kind {spec.kind.name} are not supported")

    def input(self, node: Any, name: str) -> Any:
        kind = node.meta.get("val")
        if not hasattr(kind, "dtype"):
            if kind is None or isinstance(kind, (int, float, bool, str)):
                return kind  # torch.export has put it into the program
            return self.symbols.size(kind)
        self.inputs.append(Var(name, self.blamed(node, lambda: self.tensor_type(kind))))
        return self.inputs[-1]

    def check_inputs(self, fields: Sequence[tuple[str, Any, str]]) -> None:
        """Refuse descriptions of inputs that an exported program contradicts."""
        users = [
            n
            for n, s in zip(self.program.graph_module.graph.nodes, self.program.graph_signature.input_specs)
            if s.kind.name == "USER_INPUT" and hasattr(n.meta.get("val"), "shape")
        ]
        for node, (name, shape, _) in zip(users, fields):
            have = tuple(node.meta["val"].shape)
            fits = len(have) == len(shape) and all(
                a == b for a, b in zip(have, shape) if isinstance(a, int) and isinstance(b, int)
            )
            if not fits:
                raise FrontendError(
                    f"input {name!r} is described as {shape}, and the program was exported with {have}"
                )
            fixed = [
                d
                for d, (a, b) in enumerate(zip(have, shape))
                if isinstance(a, int) and not isinstance(b, int)
            ]
            if fixed:
                raise FrontendError(
                    f"input {name!r}: the model fixes the size of dimension {fixed[0]} when it runs, as traces do with "
                    "sizes that they compute with; leave it open with torch.export and dynamic_shapes"
                )

    def stored(self, node: Any, spec: Any) -> Any:
        """A parameter or buffer as a variable, made when it is read; another constant as its values."""
        state, constants = self.program.state_dict, self.program.constants
        tensor = state.get(spec.target, constants.get(spec.target))
        if tensor is None:
            raise FrontendError(f"the program has no tensor {spec.target!r}")
        name = spec.target
        if spec.kind.name == "CONSTANT_TENSOR":
            found = self.places.get(place(tensor)) if self.places else None
            if found is None:
                return _Known(tensor.detach())
            name = found
        if self.plain_names:
            name = name.replace(".", "_")

        def make() -> Var:
            data = constant(self.blamed(node, lambda: array_of(tensor))).data
            if name not in self.params:
                self.params[name] = data
                self.param_vars.append(Var(name, TensorType(data.shape, data.dtype)))
                return self.param_vars[-1]
            return next(v for v in self.param_vars if v.name_hint == name)

        return make if node.users else None

    # -- the graph ---------------------------------------------------------------------------
    def walk(self, module: Any, env: dict[Any, Any]) -> list[Any]:
        """The outputs of a graph whose placeholders are in `env`."""
        live = _live(module.graph)
        for node in module.graph.nodes:
            if node.op == "output":
                (given,) = node.args
                given = given if isinstance(given, (list, tuple)) else [given]
                return [self.value(v, env) for v in given]
            if node.op == "get_attr" and node in live:
                env[node] = self.attribute(module, node)
            elif node.op == "call_function" and node in live:
                env[node] = self.blamed(node, lambda node=node: self.call(node, env))  # type: ignore[misc]
        raise FrontendError("the graph has no output")

    def attribute(self, module: Any, node: Any) -> Any:
        found = module
        for part in node.target.split("."):
            found = getattr(found, part)
        return _Known(found.detach()) if hasattr(found, "detach") else found

    def value(self, arg: Any, env: dict[Any, Any]) -> Any:
        """An argument of a node with its nodes replaced by their values."""
        if isinstance(arg, (list, tuple)):
            return [self.value(a, env) for a in arg]
        if arg.__class__.__name__ != "Node":
            return arg
        found = env[arg]
        if callable(found) and not isinstance(found, Expr) and not hasattr(found, "graph"):
            found = env[arg] = found()  # a parameter that is read for the first time
        return found

    def expr(self, value: Any) -> Expr:
        """A result as an expression."""
        if isinstance(value, _Known):
            return value.expr
        if isinstance(value, (bool, int, float)):
            return constant(value, {bool: "bool", int: "int64"}.get(type(value), "float32"))
        if not isinstance(value, Expr):
            raise FrontendError(f"a result of the model is {value!r}, which is not a tensor")
        return value

    def call(self, node: Any, env: dict[Any, Any]) -> Any:
        val = node.meta.get("val")
        target = node.target
        if target is operator.getitem:
            whole, index = (self.value(a, env) for a in node.args)
            found = whole[index]
            if isinstance(found, FunctionType):
                found = found()
            if found is None:
                raise Refusal(f"result {index} of {node.args[0].target} is not supported")
            return found
        if _is_number(val) and not hasattr(target, "_schema"):
            return self.symbols.size(val) if not isinstance(val, (int, float)) else val
        if getattr(target, "namespace", "") == "higher_order" or not hasattr(target, "_schema"):
            return self.higher_order(node, env)
        schema = target._schema
        given = self.arguments(node, schema, env)
        folded = self.fold(node, given)
        if folded is not None:
            return folded
        if _is_number(val) and not isinstance(val, (bool, float)) and "sym_" in schema.name:
            return self.symbols.size(val)
        site = Site(str(target), self.kinds(val))
        given = {name: _opened(v) for name, v in given.items()}
        own = self.custom.get(schema.name)
        if own is not None:
            values = list(given.values())
            made = own(values, [_classic_type(v) for v in values])
        else:
            row = find(target)
            if row is None:
                raise Refusal("there is no converter for it")
            made = row(site, schema, given)
        return self.results(site, made)

    def arguments(self, node: Any, schema: Any, env: dict[Any, Any]) -> dict[str, Any]:
        """The arguments by the names of the signature, defaults filled in."""
        given: dict[str, Any] = {}
        for i, a in enumerate(schema.arguments):
            if i < len(node.args) and not a.kwarg_only:
                given[a.name] = self.value(node.args[i], env)
            elif a.name in node.kwargs:
                given[a.name] = self.value(node.kwargs[a.name], env)
            else:
                given[a.name] = a.default_value
        return given

    def fold(self, node: Any, given: Mapping[str, Any]) -> Any:
        """The result of a call with constant arguments: torch computes it."""
        import torch

        target = node.target
        if not all(_foldable(v) for v in given.values()) or torch.Tag.nondeterministic_seeded in target.tags:
            return None
        if target.namespace != "aten" or target._schema.name in self.custom:
            return None
        size = sum(v.numel() for v in _tensors(node.meta.get("val")) if isinstance(v.numel(), int))
        if size > _FOLD_LIMIT:
            return None
        with torch.no_grad():
            made = target(**{k: _closed(v) for k, v in given.items()})
        if target._schema.name in (
            "aten::empty",
            "aten::new_empty",
            "aten::empty_like",
            "aten::empty_strided",
        ):
            made = torch.zeros_like(made)
        return _known(made)

    def higher_order(self, node: Any, env: dict[Any, Any]) -> Any:
        name = _label(node)
        args = [self.value(a, env) for a in node.args]
        if name in _WRAPPERS:
            at = next(i for i, a in enumerate(args) if hasattr(a, "graph"))
            return self.inner(args[at], args[at + 1 :])
        if name == "cond":
            condition, yes, no, operands = args
            one, other = (Tuple([self.expr(v) for v in self.inner(g, operands)]) for g in (yes, no))
            chosen = If(cast(self.expr(condition), "bool"), one, other)
            return [TupleGetItem(chosen, i) for i in range(len(one.fields))]
        raise Refusal("there is no converter for it")

    def inner(self, module: Any, operands: Sequence[Any]) -> list[Any]:
        places = [n for n in module.graph.nodes if n.op == "placeholder"]
        return self.walk(module, dict(zip(places, operands, strict=True)))

    # -- types -------------------------------------------------------------------------------
    def tensor_type(self, val: Any) -> TensorType:
        return TensorType([self.symbols.size(d) for d in val.shape], dtype_name(val.dtype))

    def kinds(self, val: Any) -> tuple[TensorType | None, ...]:
        if isinstance(val, (list, tuple)):
            return tuple(self.tensor_type(v) if hasattr(v, "dtype") else None for v in val)
        return (self.tensor_type(val) if hasattr(val, "dtype") else None,)

    def results(self, site: Site, made: Any) -> Any:
        """The results with the element types of torch."""
        if isinstance(made, TupleWrapper):
            made = [made[i] for i in range(len(made))]
        if isinstance(made, (list, tuple)):
            return [self.fitted(e, kind) for e, kind in zip(made, site.kinds)]
        return self.fitted(made, site.kinds[0] if site.kinds else None)

    def fitted(self, e: Any, kind: TensorType | None) -> Any:
        if e is None or kind is None:
            return e
        if isinstance(e, FunctionType):  # made where it is used: few ask for it
            return lambda: self.fitted(e(), kind)
        have = typed(e).checked_type
        known = [(a, b) for a, b in zip(have.shape, kind.shape) if isinstance(a, int) and isinstance(b, int)]
        if len(have.shape) != len(kind.shape) or any(a != b for a, b in known):
            raise Refusal(f"its converter returns {have} where torch has {kind}; this is a bug in tilewright")
        return cast(e, str(kind.dtype))

    # -- errors ------------------------------------------------------------------------------
    def report_unsupported(self, module: Any) -> None:
        """Refuse the program if it has operators without a converter: all of them at once."""
        count: Counter[str] = Counter()
        where: dict[str, str] = {}
        for node in _all_nodes(module):
            if node.op == "call_function" and not self.is_supported(node.target):
                count[_label(node)] += 1
                where.setdefault(_label(node), _where(node))
        if count:
            rows = "\n".join(
                f"  {name} ×{times}, first in {where[name]}" for name, times in count.most_common()
            )
            raise FrontendError(
                f"operators of the model without a converter: {len(count)}\n{rows}\n"
                "Give one for each in custom_convert_map, or write the model without them"
            )

    def is_supported(self, target: Any) -> bool:
        if target is operator.getitem or not hasattr(target, "_schema"):
            name = getattr(target, "__name__", str(target))
            plain = getattr(target, "__module__", "") in ("_operator", "math", "builtins", "torch")
            return plain or name in _WRAPPERS or name == "cond"
        return find(target) is not None or target._schema.name in self.custom or _folds_only(target)

    def blamed(self, node: Any, work: Callable[[], Any]) -> Any:
        """The result of `work`; an error names the call and its location in the model."""
        try:
            with at_node(f"{_label(node)} in {_where(node)}", path=_path(node)):
                return work()
        except FrontendError as error:
            if str(error).startswith("aten"):
                raise
            raise FrontendError(f"{_label(node)} in {_where(node)}: {error}") from error
        except (Refusal, TVMError, ValueError, TypeError, RuntimeError) as error:
            raise FrontendError(f"{_label(node)} in {_where(node)}: {error}") from error
        except (IndexError, KeyError, AttributeError, AssertionError, ArithmeticError) as error:
            raise FrontendError(
                f"{_label(node)} in {_where(node)}: {type(error).__name__}: {error}"
            ) from error


_WRAPPERS = ("wrap_with_set_grad_enabled", "wrap_with_autocast", "wrap_set_grad_enabled", "hints_wrapper")
# Numbers from sizes, and checks on them: torch.export has done them.
_NUMBERS = "sym_size sym_numel sym_stride sym_constrain_range sym_constrain_range_for_size _assert_scalar _assert_async"
_FOLDED = (
    "item _local_scalar_dense is_nonzero _assert_tensor_metadata arange full zeros ones empty eye linspace logspace "
    "scalar_tensor tril_indices triu_indices empty_strided lift_fresh_copy hann_window hamming_window"
)


def _warn_of_state(what: str, names: Sequence[str]) -> None:
    """Say that buffers, or inputs, which a model changes keep their values."""
    if names:
        more = ", …" if names[3:] else ""
        warnings.warn(
            f"the model changes its {what} when it runs ({', '.join(names[:3])}{more}); the compiled model leaves "
            "them as they are",
            RuntimeWarning,
            stacklevel=2,
        )


def _folds_only(target: Any) -> bool:
    """Whether an operator needs no converter, because it is always known or never read."""
    name = target._schema.name.partition("::")[2]
    return target.namespace == "aten" and name in (*_NUMBERS.split(), *_FOLDED.split())


def _live(graph: Any) -> set[Any]:
    """The nodes that an output depends on."""
    live: set[Any] = set()
    stack = [n for n in graph.nodes if n.op == "output"]
    while stack:
        node = stack.pop()
        if node not in live:
            live.add(node)
            stack += node.all_input_nodes
    return live


def _all_nodes(module: Any) -> list[Any]:
    found: list[Any] = []
    for part in module.modules():
        if hasattr(part, "graph"):
            live = _live(part.graph)
            found += [n for n in part.graph.nodes if n in live]
    return found


def _label(node: Any) -> str:
    target = node.target
    if getattr(target, "namespace", "") == "aten":
        return str(target)
    if hasattr(target, "_schema"):
        return f"{target._schema.name}.{target._overloadname}"
    return str(getattr(target, "__name__", target))


def _where(node: Any) -> str:
    """The module that a node comes from: `BertModel/encoder.layer.0.attention (BertSelfAttention)`."""
    stack = list((node.meta.get("nn_module_stack") or {}).values())
    if not stack:
        return f"the model (node {node.name})"
    path, kind = stack[-1]
    name = kind if isinstance(kind, str) else kind.__qualname__
    return f"{path or 'the model'} ({name.rpartition('.')[2]})"


def _path(node: Any) -> str:
    """The path of the module that a node comes from, or the node's name: `encoder.layer.0.attention.self`."""
    stack = list((node.meta.get("nn_module_stack") or {}).values())
    path = str(stack[-1][0]) if stack else ""
    return path.removeprefix("L['self'].") or str(node.name)


def _is_number(val: Any) -> bool:
    return isinstance(val, (bool, int, float)) or type(val).__name__ in ("SymInt", "SymFloat", "SymBool")


def _tensors(val: Any) -> list[Any]:
    if isinstance(val, (list, tuple)):
        return [t for v in val for t in _tensors(v)]
    return [val] if hasattr(val, "numel") else []


def _foldable(value: Any) -> bool:
    if isinstance(value, list):
        return all(map(_foldable, value))
    return not isinstance(value, (Expr, PrimExpr))


def _known(made: Any) -> Any:
    if isinstance(made, (list, tuple)):
        return [_known(m) for m in made]
    return _Known(made) if hasattr(made, "numel") else made


def _closed(value: Any) -> Any:
    """A known value as a torch value."""
    if isinstance(value, list):
        return [_closed(v) for v in value]
    return value.tensor if isinstance(value, _Known) else value


def _opened(value: Any) -> Any:
    """A value in the form of converters: tensors as expressions, element types by name."""
    if isinstance(value, (list, tuple)):
        return [_opened(v) for v in value]
    if isinstance(value, _Known):
        return value.expr
    if type(value).__name__ == "dtype":
        return dtype_name(value)
    if isinstance(value, float) and math.isfinite(value):
        return float(value)
    return value


def _classic_type(value: Any) -> str:
    """The type of an argument as a converter of the user's gets it."""
    return str(typed(value).checked_type.dtype) if isinstance(value, Expr) else type(value).__name__
