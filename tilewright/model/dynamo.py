"""The backend of `torch.compile(module, backend="tilewright")`, for inference.

    TorchDynamo ──▶ graph and its inputs ──▶ torch.export, weights as constants ──▶ compiled model

Parameters and buffers are constants of the compiled code, in the layout of its kernels; a call that finds them changed
compiles again. Graphs that cannot be compiled, and calls that need gradients, run in PyTorch, with a warning that says
why.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from ..ir.errors import FrontendError
from ..relay.build_module import as_target
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
        raise ValueError(
            f"torch.compile(mode={mode!r}): there is one mode; options={{'trials': 64}} searches"
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
        self.versions: dict[Any, Callable[..., Any]] = {}
        self.weights: list[tuple[Any, int]] = []
        self.told = False

    def __call__(self, *args: Any) -> Any:
        if torch.is_grad_enabled() and any(isinstance(a, torch.Tensor) and a.requires_grad for a in args):
            self.tell("it is called where gradients are recorded; call it under torch.no_grad()")
            return self.gm(*args)
        if not self.same_weights(args):
            self.versions.clear()
            self.weights = [(args[i], args[i]._version) for i in self.fixed]
        key = self.key(args)
        found = self.versions.get(key)
        if found is None:
            found = self.versions[key] = self.compiled(args)
        return found(*args)

    def same_weights(self, args: Sequence[Any]) -> bool:
        if len(self.weights) != len(self.fixed):
            return False
        return all(
            args[i] is t and t._version == v for i, (t, v) in zip(self.fixed, self.weights, strict=True)
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
        taken = [
            i
            for i, a in enumerate(args)
            if isinstance(a, torch.Tensor) and i not in {*self.fixed, *self.numbers, *self.scalars}
        ]
        module = _Bound(_specialized(self.gm, args, self.scalars), args, taken, self.numbers)
        tensors = tuple(args[i].detach() for i in taken)
        auto = torch.export.Dim.AUTO
        shapes = tuple(dict.fromkeys(self.open[i], auto) for i in taken)
        try:
            with torch.no_grad(), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                program = torch.export.export(
                    module, tensors, dynamic_shapes=(shapes,) if any(shapes) else None, strict=False
                )
            made = self.options.built(*imported(program, "graph"))
        except (FrontendError, torch._dynamo.exc.TorchDynamoException, RuntimeError, ValueError) as error:
            self.tell(f"it cannot be compiled: {(str(error).strip().splitlines() or [repr(error)])[0]}")
            return self.gm
        return lambda *given: made(*(given[i] for i in taken))

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
