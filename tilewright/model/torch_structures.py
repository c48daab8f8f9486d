"""Objects with tensors in them, such as the KV caches of transformers, as arguments and results of a module.

torch.export takes tuples, dictionaries, dataclasses and what is registered with torch's pytree. Classes of other
objects are registered here when a module takes or returns one: attributes with tensors in them are branches, the other
attributes are constants.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def structures(module: Any, arguments: Any) -> Iterator[None]:
    """Classes of the objects in the arguments, and in the results of a module that is called in this context, are known
    to pytree."""
    register_classes(arguments)
    hook = module.register_forward_hook(lambda _module, _args, result: register_classes(result))
    try:
        yield
    finally:
        hook.remove()


def register_classes(value: Any) -> None:
    """Register the classes of objects with tensors that pytree would take for leaves."""
    import torch
    from torch.utils import _pytree as pytree

    for leaf in pytree.tree_leaves(value):
        if isinstance(leaf, (torch.Tensor, torch.nn.Module, type)) or not hasattr(leaf, "__dict__"):
            continue
        register_classes(vars(leaf))
        if type(leaf) not in pytree.SUPPORTED_NODES and _has_tensor(vars(leaf)):
            _register(type(leaf), frozenset(k for k, v in vars(leaf).items() if _has_tensor(v)))


def _has_tensor(value: Any) -> bool:
    import torch
    from torch.utils import _pytree as pytree

    return any(isinstance(leaf, torch.Tensor) for leaf in pytree.tree_leaves(value))


def _register(cls: type, known: frozenset[str]) -> None:
    """`known` attributes are branches whatever is in them: programs are described by trees of numbers and names too."""
    from torch.utils import _pytree as pytree

    def parted(obj: Any) -> tuple[dict[str, Any], tuple[tuple[str, ...], tuple[tuple[str, Any], ...]]]:
        fields = vars(obj)
        branches = {k: v for k, v in fields.items() if k in known or _has_tensor(v)}
        rest = tuple((k, v) for k, v in fields.items() if k not in branches)
        return branches, (tuple(branches), rest)

    def flatten(obj: Any) -> tuple[list[Any], Any]:
        branches, context = parted(obj)
        return list(branches.values()), context

    def flatten_with_keys(obj: Any) -> tuple[list[Any], Any]:
        branches, context = parted(obj)
        return [(pytree.GetAttrKey(k), v) for k, v in branches.items()], context

    def unflatten(values: Any, context: Any) -> Any:
        names, rest = context
        made: Any = object.__new__(cls)
        vars(made).update(rest)
        vars(made).update(zip(names, values, strict=True))
        return made

    pytree.register_pytree_node(cls, flatten, unflatten, flatten_with_keys_fn=flatten_with_keys)
