"""Random numbers. Each run of a compiled model draws the same; `numpy.random.seed` before the import fixes them."""

from __future__ import annotations

from typing import Any

from ...expr import Expr
from ..common.random import generator, normal, uniform
from .build import R, cast, literal
from .table import Refusal, Site, aten

_DRAW = frozenset(
    "rand rand_like randn randn_like randperm randint randint_like bernoulli native_dropout dropout multinomial normal "
    "normal_functional uniform exponential cauchy geometric log_normal poisson binomial".split()
)


def is_random(node: Any) -> bool:
    """Whether a call of an operator draws random numbers."""
    if getattr(node.target, "namespace", "") != "aten":
        return False
    schema = node.target._schema
    given = dict(zip([a.name for a in schema.arguments], node.args)) | dict(node.kwargs)
    return schema.name.partition("::")[2] in _DRAW and given.get("train") is not False


def _sizes(n: Site) -> tuple[int, ...]:
    found = n.shape
    if not all(isinstance(d, int) for d in found):
        raise Refusal(f"random numbers of a dynamic shape {tuple(map(str, found))} cannot be drawn")
    return found


@aten("rand", "rand_like")
def rand(n: Site) -> Expr:
    return uniform(generator(None), _sizes(n), n.dtype)


@aten("randn", "randn_like")
def randn(n: Site) -> Expr:
    return normal(generator(None), _sizes(n), n.dtype)


@aten("randperm")
def randperm(n: Site) -> Expr:
    """The order in which random numbers would be sorted."""
    return R.argsort(uniform(generator(None), _sizes(n), "float64"), dtype="int32")


@aten("randint", "randint_like")
def randint(n: Site, high: Any, low: Any = 0) -> Expr:
    # The floor in 64 bits: a number just below 1 would round to `high` in 32.
    drawn = uniform(generator(None), _sizes(n), "float64", float(low), float(high))
    return cast(R.floor(drawn), n.dtype)


@aten("bernoulli", "bernoulli.p")
def bernoulli(n: Site, x: Expr, p: Any = None) -> Expr:
    """1 with a probability, that of each element or one for all, else 0."""
    drawn = uniform(generator(None), _sizes(n), "float32")
    return cast(R.less(drawn, literal(p, "float32") if p is not None else cast(x, "float32")), n.dtype)
