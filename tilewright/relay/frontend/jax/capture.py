"""A function of JAX and examples of its arguments as a closed jaxpr, and the names of its inputs and results."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ....ir.errors import FrontendError

Dynamic = Mapping[str, Mapping[int, str] | Sequence[str | int | None]]


@dataclass(slots=True)
class Program:
    """A closed jaxpr, and a name for each input and each result; an empty name stands for none.

    `weights` has the names of arrays that the function has closed over, by `place_of` each.
    """

    jaxpr: Any
    inputs: list[str]
    results: list[str]
    weights: dict[Any, str]


def load_jax() -> Any:
    try:
        import jax
    except ImportError as error:
        raise FrontendError(f"from_jax needs JAX: {error}; pip install jax") from error
    import jax.extend.core  # not loaded by `import jax`
    import jax.extend.source_info_util

    return jax


def captured(
    function: Any, args: Sequence[Any], kwargs: Mapping[str, Any], dynamic: Dynamic | None
) -> Program:
    """The jaxpr of a function for the shapes and types of its arguments; a closed jaxpr as it is."""
    jax = load_jax()
    if isinstance(function, jax.extend.core.ClosedJaxpr):
        if args or kwargs or dynamic:
            raise FrontendError(
                "from_jax: a closed jaxpr has its shapes; leave out the examples and dynamic=, or give the function"
            )
        return _named(function)
    if not callable(function):
        raise FrontendError(
            f"from_jax takes a function of JAX or a closed jaxpr (jax.make_jaxpr(f)(x)), not {type(function).__name__}"
        )
    examples = (tuple(args), dict(kwargs))
    _check_leaves(jax, function, examples)
    if dynamic:
        examples = _opened(jax, function, examples, dynamic)
    return _named(jax.make_jaxpr(function)(*examples[0], **examples[1]), _bound(jax, function))


def _named(closed: Any, weights: dict[Any, str] | None = None) -> Program:
    info = getattr(closed.jaxpr, "debug_info", None)
    count = len(closed.jaxpr.invars)
    names = [_plain(n or "") for n in getattr(info, "arg_names", None) or ()]
    if len(names) != count:
        names = [""] * count
    paths = getattr(info, "result_paths", None) or ()
    results = [_result(p or "") for p in paths]
    if len(results) != len(closed.jaxpr.outvars):
        results = []
    given = _distinct([n or f"input_{i}" for i, n in enumerate(names)])
    return Program(closed, given, results, weights or {})


def _plain(path: str) -> str:
    """A path in a pytree with dots: `params['dense'][0].w` as `params.dense.0.w`."""
    return re.sub(r"\[(?:<flat index )?(?:'([^']*)'|\"([^\"]*)\"|([^]>]*))>?\]", _dotted, path).strip(".")


def _dotted(found: re.Match[str]) -> str:
    return "." + next(g for g in found.groups() if g is not None)


def _result(path: str) -> str:
    """The name of a result: its path, if a key or an attribute is part of it."""
    inner = path.removeprefix("result")
    return _plain(inner) if re.search(r"['\".]", inner) else ""


def _distinct(names: Sequence[str]) -> list[str]:
    seen: dict[str, int] = {}
    out = []
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        out.append(name if seen[name] == 1 else f"{name}_{seen[name] - 1}")
    return out


# ---------------------------------------------------------------------------- closed-over arrays
def place_of(array: Any) -> Any:
    """Where the elements of an array are: equal for an array and for the constant that JAX makes of it."""
    import numpy as np

    data = np.asarray(array)
    return data.__array_interface__["data"][0], data.shape, str(data.dtype)


def _bound(jax: Any, function: Any) -> dict[Any, str]:
    """Names of the arrays that a function reads besides its arguments: bound ones, its closure, globals, its object."""
    trees: dict[str, Any] = {}
    while isinstance(function, functools.partial) or hasattr(function, "__wrapped__"):
        if not isinstance(function, functools.partial):
            function = function.__wrapped__  # what `jit`, `vmap` and `checkpoint` were given
            continue
        function, given = function.func, function
        trees.update(given.keywords)
        try:
            trees.update(inspect.signature(function).bind_partial(*given.args).arguments)
        except (TypeError, ValueError):
            trees.update({f"arg_{i}": a for i, a in enumerate(given.args)})
    if inspect.isfunction(function):
        read = inspect.getclosurevars(function)
        trees.update({**read.globals, **read.nonlocals})
    else:
        trees.update(_attributes(jax, getattr(function, "__self__", function)))
    names: dict[Any, str] = {}
    for name, tree in trees.items():
        for path, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]:
            if hasattr(leaf, "dtype") and hasattr(leaf, "shape") and hasattr(leaf, "__array__"):
                names.setdefault(place_of(leaf), _plain(name + jax.tree_util.keystr(path)))
    return names


def _attributes(jax: Any, owner: Any) -> dict[str, Any]:
    """The arrays of an object: a pytree by its paths, another by its attributes."""
    if jax.tree_util.all_leaves([owner]):
        return dict(getattr(owner, "__dict__", {}))
    return {"": owner}


# ---------------------------------------------------------------------------- examples
def _paths(jax: Any, function: Any, examples: Any) -> list[tuple[str, Any]]:
    """The leaves of the examples, in the order of the pytree, with their names as the jaxpr has them."""
    names = _argument_names(function, len(examples[0]))
    rows = []
    for (kind, which, *path), leaf in jax.tree_util.tree_flatten_with_path(examples)[0]:
        first = names[which.idx] if kind.idx == 0 else str(which.key)
        rows.append((_plain(first + jax.tree_util.keystr(tuple(path))), leaf))
    return rows


def _argument_names(function: Any, count: int) -> list[str]:
    """The names of the first positional arguments; those of `*rest` are `rest[0]`, `rest[1]`, …"""
    try:
        given = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return [f"args[{i}]" for i in range(count)]
    names = [p.name for p in given if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    rest = next((p.name for p in given if p.kind is p.VAR_POSITIONAL), "args")
    return [*names, *(f"{rest}[{i}]" for i in range(count))][:count]


def _check_leaves(jax: Any, function: Any, examples: Any) -> None:
    """Refuse arguments that are no arrays before JAX does."""
    import numpy as np

    for name, leaf in _paths(jax, function, examples):
        fits = isinstance(leaf, (bool, int, float, np.generic)) or (
            hasattr(leaf, "shape") and hasattr(leaf, "dtype")
        )
        if not fits:
            raise FrontendError(
                f"from_jax: argument {name} is {leaf!r} and not an array; bind it before: "
                f"functools.partial(function, {name.partition('.')[0]}=…), or a lambda"
            )


def _opened(jax: Any, function: Any, examples: Any, dynamic: Dynamic) -> Any:
    """The examples as shapes, with symbols for the dimensions that `dynamic` names."""
    import jax.export

    flat = _paths(jax, function, examples)
    names = [name for name, _ in flat]
    unknown = [name for name in dynamic if name not in names]
    if unknown:
        raise FrontendError(f"dynamic: there is no input {unknown[0]!r}; the inputs are {', '.join(names)}")
    scope = jax.export.SymbolicScope()
    leaves = [
        _symbolic(jax, name, leaf, dynamic[name], scope) if name in dynamic else leaf for name, leaf in flat
    ]
    return jax.tree_util.tree_unflatten(jax.tree_util.tree_structure(examples), leaves)


def _symbolic(jax: Any, name: str, leaf: Any, axes: Any, scope: Any) -> Any:
    import numpy as np

    shape = list(np.shape(leaf))
    named = (
        dict(axes) if isinstance(axes, Mapping) else {i: a for i, a in enumerate(axes) if isinstance(a, str)}
    )
    for axis, symbol in named.items():
        if not isinstance(axis, int) or not -len(shape) <= axis < len(shape):
            raise FrontendError(
                f"dynamic: input {name!r} has {len(shape)} dimensions and no dimension {axis!r}"
            )
        if not isinstance(symbol, str) or not symbol.isidentifier():
            raise FrontendError(
                f"dynamic: the size of dimension {axis} of {name!r} needs a name, not {symbol!r}"
            )
        (shape[axis],) = jax.export.symbolic_shape(symbol, scope=scope)
    dtype = leaf.dtype if hasattr(leaf, "dtype") else jax.numpy.result_type(leaf)
    return jax.ShapeDtypeStruct(tuple(shape), dtype)
