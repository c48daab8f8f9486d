"""The backend of `torch.compile(module, backend="tilewright")`, for inference.

    TorchDynamo ──▶ graph and its inputs ──▶ torch.export, weights as constants ──▶ compiled model

Parameters and buffers are constants of the compiled code, in the layout of its kernels; a call that finds them changed
compiles again. What a graph changes in place, an argument or a buffer, is an input and a result, which is written back;
a result that is a view of an argument is one. Graphs that cannot be compiled or draw random numbers, and calls that
need gradients, run in PyTorch, with a warning that says why.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import torch

from ..ir.errors import FrontendError
from ..relay.build_module import as_target
from ..relay.frontend.pytorch.capture import decomposed
from ..relay.frontend.pytorch.random import is_random
from .compiling import _Options
from .torch_models import imported

_KNOWN = ("target", "dtype", "trials", "records", "opt_level")


def backend(
    gm: torch.fx.GraphModule,
    example_inputs: Sequence[Any],
    *,
    options: Mapping[str, Any] | None = None,
    mode: str | None = None,
) -> Callable[..., Any]:
    """Compile a graph of TorchDynamo at its first call.

    `options` are arguments of `tilewright.compile`: target, dtype, trials, records, opt_level.
    """
    given = dict(options or {})
    if unknown := [k for k in given if k not in _KNOWN]:
        raise ValueError(
            f"torch.compile(options=…): there is no option {unknown[0]!r}; known are {', '.join(_KNOWN)}"
        )
    if mode not in (None, "default"):
        warnings.warn(
            f"torch.compile(mode={mode!r}): tilewright has one mode; options={{'trials': 64}} searches",
            RuntimeWarning,
            stacklevel=2,
        )
    return _Graph(gm, given)


class _Graph:
    """A graph, compiled for the shapes that it is called with."""

    def __init__(self, gm: torch.fx.GraphModule, options: dict[str, Any]) -> None:
        self.gm = gm
        self.options = _Options(
            as_target(options.get("target")), options.get("dtype"), int(options.get("trials", 0)),
            options.get("records"), None, int(options.get("opt_level", 3)),
        )  # fmt: skip
        nodes = [n for n in gm.graph.nodes if n.op == "placeholder"]
        self.fixed = [i for i, n in enumerate(nodes) if _is_weight(n)]
        self.numbers = _sizes_of(nodes)
        self.scalars = [i for i, n in enumerate(nodes) if _is_scalar(n)]
        self.open = [_open_dims(n) for n in nodes]
        self.views = _views(gm)
        self.versions: dict[Any, Callable[..., Any]] = {}
        self.weights: list[Any] = []
        self.told = False

    def __call__(self, *args: Any) -> Any:
        if torch.is_grad_enabled() and any(isinstance(a, torch.Tensor) and a.requires_grad for a in args):
            self.tell("it is called where gradients are recorded; call it under torch.no_grad()")
            return self.gm(*args)
        if not self.same_weights(args):
            self.versions.clear()
            self.weights = [_state(args[i]) for i in self.fixed]
        key = self.key(args)
        found = self.versions.get(key)
        if found is None:
            found = self.compiled(args)
            self.versions[self.key(args)] = found  # it may have made inputs of weights
        return found(*args)

    def same_weights(self, args: Sequence[Any]) -> bool:
        if len(self.weights) != len(self.fixed):
            return False
        return all(
            args[i] is t and t._version == v and t.data_ptr() == place
            for i, (t, v, place) in zip(self.fixed, self.weights, strict=True)
        )

    def key(self, args: Sequence[Any]) -> Any:
        """What a version depends on: shapes, unless they are symbols of the graph, and numbers."""
        fixed = set(self.fixed)
        out: list[Any] = [torch.is_autocast_enabled("cpu") and torch.get_autocast_dtype("cpu")]
        for i, a in enumerate(args):
            if i in fixed or i in self.numbers:
                continue
            if i in self.scalars:
                out.append(a.item())
            elif isinstance(a, torch.Tensor):
                out.append((a.dtype, *(None if d in self.open[i] else n for d, n in enumerate(a.shape))))
            else:
                out.append((type(a), a))
        return tuple(out)

    def compiled(self, args: Sequence[Any]) -> Callable[..., Any]:
        try:
            taken, program = self.exported(args)
            if changed := {i for i in _changed(program, taken) if i in self.fixed}:
                self.fixed = [i for i in self.fixed if i not in changed]  # buffers that are results too
                self.weights = [_state(args[i]) for i in self.fixed]
                taken, program = self.exported(args)
            if drawn := _random(program):
                raise FrontendError(
                    f"{drawn} draws random numbers, of which each run of compiled code draws the same"
                )
            source, form = imported(program, "graph", state=True)
            made = self.options.built(source, form)
        except (FrontendError, torch._dynamo.exc.TorchDynamoException, RuntimeError, ValueError) as error:
            self.tell(f"it cannot be compiled: {_in_short(error)}")
            return self.gm
        return self.call(made, form, taken, _changed(program, taken))

    def call(self, made: Any, form: Any, taken: list[int], changed: list[int]) -> Callable[..., Any]:
        """The compiled model as a function of the graph's arguments."""
        views = self.views
        if not changed and not views:
            return lambda *given: made(*(given[i] for i in taken))

        def run(*given: Any) -> Any:
            tensors = made.results([given[i] for i in taken])
            with torch.no_grad():
                for i, new in zip(changed, tensors[len(tensors) - len(changed) :], strict=True):
                    given[i].copy_(new)
            out = form.result(tensors)
            if not views:
                return out
            return type(out)(views[k](given) if k in views else v for k, v in enumerate(out))

        return run

    def exported(self, args: Sequence[Any]) -> tuple[list[int], Any]:
        """The arguments that are inputs of the program, and the program."""
        taken = [
            i
            for i, a in enumerate(args)
            if isinstance(a, torch.Tensor) and i not in {*self.fixed, *self.numbers, *self.scalars}
        ]
        module = _Bound(_specialized(self.gm, args, self.scalars), args, taken, self.numbers)
        tensors = tuple(args[i].detach() for i in taken)
        auto = torch.export.Dim.AUTO
        shapes = tuple(dict.fromkeys(self.open[i], auto) for i in taken)
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            program = torch.export.export(
                module, tensors, dynamic_shapes=(shapes,) if any(shapes) else None, strict=False
            )
        return taken, decomposed(program, ()) if any(map(_writes, _calls(program))) else program

    def tell(self, why: str) -> None:
        if not self.told:
            self.told = True
            count = sum(n.op == "call_function" for n in self.gm.graph.nodes)
            warnings.warn(
                f"tilewright: a graph of {count} operators runs in PyTorch: {why}",
                RuntimeWarning,
                stacklevel=3,
            )


class _Bound(torch.nn.Module):
    """A graph as a function of some of its inputs: weights are buffers, sizes are those of tensors."""

    def __init__(
        self,
        gm: torch.fx.GraphModule,
        args: Sequence[Any],
        taken: Sequence[int],
        numbers: Mapping[int, tuple[int, int]],
    ) -> None:
        super().__init__()
        self.gm, self.taken, self.numbers = gm, list(taken), dict(numbers)
        self.values = [None if isinstance(a, torch.Tensor) else a for a in args]
        self.names = {}
        for i, a in enumerate(args):
            if isinstance(a, torch.Tensor) and i not in self.taken:
                self.names[i] = f"weight{i}"
                self.register_buffer(self.names[i], a.detach())

    def forward(self, *tensors: torch.Tensor) -> Any:
        args: list[Any] = list(self.values)
        for i, t in zip(self.taken, tensors, strict=True):
            args[i] = t
        for i, name in self.names.items():
            args[i] = getattr(self, name)
        for i, (tensor, d) in self.numbers.items():
            args[i] = args[tensor].shape[d]
        return self.gm(*args)


def _state(weight: torch.Tensor) -> tuple[torch.Tensor, int, int]:
    """What tells that a weight was changed: the tensor, its version, and where its elements are."""
    return weight, weight._version, weight.data_ptr()


def _changed(program: Any, taken: Sequence[int]) -> list[int]:
    """The arguments of the graph that a program changes in place, in the order of their new values in its results."""
    signature = program.graph_signature
    inputs = [s.arg.name for s in signature.input_specs if s.kind.name == "USER_INPUT"]
    out = []
    for spec in signature.output_specs:
        if spec.kind.name == "USER_INPUT_MUTATION":
            out.append(taken[inputs.index(spec.target)])
        elif spec.kind.name == "BUFFER_MUTATION":
            out.append(int(spec.target.removeprefix("weight")))
    return out


def _random(program: Any) -> str:
    """An operator of the program that draws random numbers, "" if none does."""
    return next((str(node.target) for node in _calls(program) if is_random(node)), "")


def _calls(program: Any) -> Iterator[Any]:
    """The calls of operators in a program, those in branches and loops too."""
    for module in program.graph_module.modules():
        for node in getattr(getattr(module, "graph", None), "nodes", ()):
            if node.op == "call_function":
                yield node


def _writes(node: Any) -> bool:
    """Whether an operator changes one of its arguments."""
    return bool(getattr(getattr(node.target, "_schema", None), "is_mutable", False))


def _views(gm: torch.fx.GraphModule) -> dict[int, Callable[[Sequence[Any]], torch.Tensor]]:
    """The results that are views of arguments: how each is made of the arguments."""
    nodes = list(gm.graph.nodes)
    places: list[Any] = [n.meta.get("example_value") for n in nodes if n.op == "placeholder"]
    owners = {v.untyped_storage()._cdata: i for i, v in enumerate(places) if isinstance(v, torch.Tensor)}
    (results,) = nodes[-1].args if nodes[-1].op == "output" else ((),)
    found: dict[int, Callable[[Sequence[Any]], torch.Tensor]] = {}
    for k, node in enumerate(results if isinstance(results, (list, tuple)) else ()):
        value: Any = getattr(node, "meta", {}).get("example_value")
        owner = owners.get(value.untyped_storage()._cdata) if isinstance(value, torch.Tensor) else None
        if owner is None:
            continue
        size, stride = tuple(value.shape), tuple(value.stride())
        first = value.storage_offset() - places[owner].storage_offset()
        if value.dtype == places[owner].dtype and all(isinstance(n, int) for n in (*size, *stride, first)):
            found[k] = partial(_view, owner, size, stride, first)
    return found


def _view(owner: int, size: Any, stride: Any, first: int, given: Sequence[Any]) -> torch.Tensor:
    whole = given[owner]
    return torch.as_strided(whole, size, stride, whole.storage_offset() + first)


def _in_short(error: Exception) -> str:
    """The first lines of a message, in one."""
    lines = [line.strip() for line in str(error).strip().splitlines()] or [repr(error)]
    return " ".join(lines[:4])


def _is_weight(node: Any) -> bool:
    """Whether a placeholder is a parameter or a buffer of a module."""
    if node.meta.get("tensor_dict", {}).get("_dynamo_static_input_type") is not None:
        return True
    return isinstance(node.meta.get("example_value"), torch.nn.Parameter)


def _open_dims(node: Any) -> list[int]:
    """The dynamic dimensions of a placeholder."""
    value = node.meta.get("example_value")
    if not isinstance(value, torch.Tensor):
        return []
    return [d for d, size in enumerate(value.shape) if isinstance(size, torch.SymInt)]


def _is_scalar(node: Any) -> bool:
    """Whether a placeholder is a number of Python that TorchDynamo passes as a tensor: only `item()` reads it."""
    value = node.meta.get("example_value")
    if not isinstance(value, torch.Tensor) or value.ndim or not node.users:
        return False
    return all(u.op == "call_method" and u.target == "item" for u in node.users)


def _specialized(
    gm: torch.fx.GraphModule, args: Sequence[Any], scalars: Sequence[int]
) -> torch.fx.GraphModule:
    """The graph with the values of some numbers in it."""
    if not scalars:
        return gm
    graph = copy.deepcopy(gm.graph)
    places = [n for n in graph.nodes if n.op == "placeholder"]
    for i in scalars:
        for user in list(places[i].users):
            user.replace_all_uses_with(args[i].item())
            graph.erase_node(user)
    return torch.fx.GraphModule(gm, graph)


def _sizes_of(nodes: Sequence[Any]) -> dict[int, tuple[int, int]]:
    """The placeholders that are dynamic sizes: which dimension of which tensor each is."""
    values = [n.meta.get("example_value") for n in nodes]
    found: dict[int, tuple[int, int]] = {}
    for i, v in enumerate(values):
        if not isinstance(v, torch.SymInt):
            continue
        for t, value in enumerate(values):
            if not isinstance(value, torch.Tensor):
                continue
            for d, size in enumerate(value.shape):
                if isinstance(size, torch.SymInt) and size.node.expr == v.node.expr:
                    found.setdefault(i, (t, d))
    return found
