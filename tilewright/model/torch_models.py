"""Modules and exported programs of PyTorch: what is compiled, and how a call's structures are made of tensors."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from ..ir.errors import FrontendError
from ..ir.expr import SizeVar, Var
from ..relay.frontend import from_exported_program
from ..relay.sizes import with_sizes
from ..runtime.errors import ArgumentTypeError, ArgumentValueError
from .files import Imported
from .torch_structures import register_classes, structures

if TYPE_CHECKING:
    from collections.abc import Iterator


def imported(program: Any, name: str, dynamic: Any = None, state: bool = False) -> tuple[Imported, TorchForm]:
    """The graph of an exported program, with names for its dynamic dimensions, and the form of its calls.

    With `state`, the new values of buffers are results too.
    """
    mod, params = from_exported_program(program, state=state)
    if isinstance(dynamic, Mapping):
        mod["main"] = with_names(mod["main"], dynamic)
    return Imported(mod, dict(params), name), TorchForm(program, name)


def with_names(main: Any, dynamic: Mapping[str, Any]) -> Any:
    """A function whose dynamic sizes have the names that were given to them."""
    named: dict[Any, Any] = {}
    for p in main.params:
        wanted = dynamic.get(p.name_hint)
        for d, text in wanted.items() if isinstance(wanted, Mapping) else ():
            size = p.checked_type.shape[d]
            if isinstance(size, Var):
                named.setdefault(size, SizeVar(str(text), size.dtype))
    return with_sizes(main, named)


def exported(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any], dynamic: Any) -> Any:
    """The program of a module for examples of its arguments.

    `dynamic` is True for all sizes, or has the dynamic dimensions of inputs: {"x": {0: "batch"}}. Dimensions of one
    name are equal.
    """
    import torch

    args, kwargs = _as_tensors((args, kwargs))
    args, kwargs, shapes = _shapes(module, args, kwargs, dynamic)
    taken = (args, kwargs)
    with in_inference(module), structures(module, taken), torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return torch.export.export(module, args, kwargs, dynamic_shapes=shapes, strict=False)
        except Exception as error:  # whatever a model does when it runs
            lines = str(error).strip().splitlines() or [type(error).__name__]
            raise FrontendError(
                f"{type(module).__name__}: torch.export cannot capture it: {type(error).__name__}: {lines[0]}"
            ) from error


def arguments_of(example: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of a call that an example stands for."""
    if isinstance(example, Mapping):
        return (), dict(example)
    if isinstance(example, (tuple, list)):
        return tuple(example), {}
    return (example,), {}


def _as_tensors(arguments: Any) -> Any:
    """Arguments with tensors for the arrays of NumPy in them."""
    import torch
    from torch.utils import _pytree as pytree

    return pytree.tree_map(
        lambda v: torch.from_numpy(v.copy()) if isinstance(v, np.ndarray) else v, arguments
    )


@contextmanager
def in_inference(module: Any) -> Iterator[None]:
    """A module in inference mode: dropout is off, and norms use their running statistics."""
    training = [m for m in module.modules() if m.training]
    try:
        module.eval()
        yield
    finally:
        for m in training:
            m.training = True


def _shapes(
    module: Any, args: tuple[Any, ...], kwargs: dict[str, Any], dynamic: Any
) -> tuple[tuple[Any, ...], dict[str, Any], Any]:
    """The arguments to export with, and the `dynamic_shapes` of torch.export for them."""
    import torch
    from torch.utils import _pytree as pytree

    if not dynamic:
        return args, kwargs, None
    bound = inspect.signature(module.forward).bind(*args, **kwargs)
    given = dict(bound.arguments)
    if dynamic is True:
        return args, kwargs, pytree.tree_map(lambda v: _all_sizes(v, torch), given)
    if not isinstance(dynamic, Mapping):
        raise ArgumentTypeError(f"dynamic is True, False or {{name: {{dimension: name}}}}, not {dynamic!r}")
    dims: dict[str, Any] = {}
    shapes: dict[str, Any] = dict.fromkeys(given)
    for name, wanted in dynamic.items():
        if name not in given:
            raise ArgumentValueError(f"dynamic: there is no input {name!r}; there are {', '.join(given)}")
        named = dict(wanted) if isinstance(wanted, Mapping) else {d: f"{name}_{d}" for d in wanted}
        value = given[name]
        if not isinstance(value, torch.Tensor):
            raise ArgumentValueError(f"dynamic: the input {name!r} is {type(value).__name__}, not a tensor")
        for d in named:
            if not -value.ndim <= d < value.ndim:
                raise ArgumentValueError(f"dynamic: the input {name!r} has {value.ndim} dimensions, not {d}")
        shapes[name] = {d % value.ndim: dims.setdefault(n, torch.export.Dim(n)) for d, n in named.items()}
        # torch takes sizes of 0 and 1 for constants: an example with 2 stands for any
        small = [d % value.ndim for d in named if value.shape[d] < 2]
        if small:
            sizes = [2 if d in small else s for d, s in enumerate(value.shape)]
            bound.arguments[name] = torch.zeros(sizes, dtype=value.dtype, device=value.device)
    return bound.args, bound.kwargs, shapes


def _all_sizes(value: Any, torch: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return None
    return dict.fromkeys(range(value.ndim), torch.export.Dim.AUTO)


class TorchForm:
    """The structure of a program's arguments and results: tuples, dictionaries, dataclasses, and constants in them."""

    def __init__(self, program: Any, name: str) -> None:
        from torch.utils import _pytree as pytree

        self._pytree, self._name = pytree, name
        spec, self._results = program.call_spec.in_spec, program.call_spec.out_spec
        self._arguments = spec
        args, kwargs = spec.children()
        self._args, self._kwargs = args.num_children, list(kwargs.context)
        signature = program.graph_signature
        users = [s.arg for s in signature.input_specs if s.kind.name == "USER_INPUT"]
        self._kinds = [type(arg).__name__ for arg in users]
        self._constants = [getattr(arg, "value", None) for arg in users]
        outs = [s.arg for s in signature.output_specs if s.kind.name in ("USER_OUTPUT", "LOSS_OUTPUT")]
        self._absent = [type(a).__name__ == "ConstantArgument" and a.value is None for a in outs]
        # Plain tensors in order, which are taken and returned without a walk over structures.
        plain = all(c.is_leaf() for c in args.children()) and not self._kwargs
        self._plain = self._args if plain and set(self._kinds) == {"TensorArgument"} else -1
        self._single = self._results.is_leaf() and self._absent == [False]
        whole = program.module_call_graph[0].signature
        self._names: list[str] = list(getattr(whole, "forward_arg_names", None) or ())

    def tensors(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[Any]:
        if len(args) == self._plain and not kwargs:
            return list(args)
        args, kwargs = self._as_exported(args, dict(kwargs))
        leaves, spec = self._pytree.tree_flatten((args, kwargs))
        if spec != self._arguments:
            raise ArgumentTypeError(
                f"{self._name}: its arguments have another structure than those it was compiled for: "
                f"{_shown(self._pytree, self._arguments)}"
            )
        found = []
        for leaf, kind, constant in zip(leaves, self._kinds, self._constants, strict=True):
            if kind == "TensorArgument":
                found.append(leaf)
            elif kind == "ConstantArgument" and not _same(leaf, constant):
                raise ArgumentValueError(
                    f"{self._name} was compiled for the argument {constant!r}, and {leaf!r} was given; compile it "
                    "again for that"
                )
        return found

    def _as_exported(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments positional and by name as in the example."""
        if len(args) == self._args and set(kwargs) == set(self._kwargs):
            return args, {k: kwargs[k] for k in self._kwargs}
        if len(args) <= len(self._names) and not set(self._names[: len(args)]) & set(kwargs):
            given = dict(zip(self._names, args)) | kwargs
            wanted = [*self._names[: self._args], *self._kwargs]
            if set(given) == set(wanted):
                return tuple(given[n] for n in wanted[: self._args]), {k: given[k] for k in self._kwargs}
        names = ", ".join([*(self._names or [f"{self._args} in order"])[: self._args], *self._kwargs])
        given_names = ", ".join([*([f"{len(args)} in order"] if args else []), *kwargs]) or "none"
        raise ArgumentTypeError(
            f"{self._name} takes the arguments of its example ({names}), and {given_names} were given"
        )

    def result(self, tensors: Sequence[Any]) -> Any:
        if self._single:
            return tensors[0]
        left = iter(tensors)
        leaves = [None if absent else next(left) for absent in self._absent]
        return self._pytree.tree_unflatten(leaves, self._results)


def _same(a: Any, b: Any) -> bool:
    return bool(type(a) is type(b) and a == b)


def _shown(pytree: Any, spec: Any) -> str:
    args, kwargs = pytree.tree_unflatten(["…"] * spec.num_leaves, spec)
    return ", ".join([*map(str, args), *(f"{k}={v}" for k, v in kwargs.items())])


class LazyModel:
    """A module of PyTorch that is compiled at its first call, and again for arguments of other shapes.

    With `dynamic=True` one version serves all shapes that torch.export leaves open.
    """

    def __init__(self, module: Any, make: Any, dynamic: Any) -> None:
        self.module, self._make, self._dynamic = module, make, dynamic
        self.versions: dict[Any, Any] = {}

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        key = self._key(args, kwargs)
        found = self.versions.get(key)
        if found is None:
            register_classes((args, kwargs))
            key = self._key(args, kwargs)
            found = self.versions[key] = self._make(args, kwargs)
        return found(*args, **kwargs)

    def _key(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        from torch.utils import _pytree as pytree

        leaves, spec = pytree.tree_flatten((args, kwargs))
        return spec, *(self._of(leaf) for leaf in leaves)

    def _of(self, leaf: Any) -> Any:
        import torch

        if not isinstance(leaf, (torch.Tensor, np.ndarray)):
            return type(leaf), leaf
        return str(leaf.dtype).removeprefix("torch."), leaf.ndim if self._dynamic else tuple(leaf.shape)

    @property
    def compiled(self) -> Any:
        """The version of the last new shapes."""
        if not self.versions:
            raise ArgumentValueError(
                f"{type(self.module).__name__} has not been called yet: call it, or compile it with an example of its "
                "inputs"
            )
        return list(self.versions.values())[-1]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name in ("module", "versions"):
            raise AttributeError(name)
        return getattr(self.compiled, name)

    def __repr__(self) -> str:
        return f"LazyModel({type(self.module).__name__}, compiled for {len(self.versions)} sets of shapes)"
