"""Questions about graph expressions."""

# ruff: noqa: F403
from typing import Any

from ..._later import announce
from . import counts, features, parts, walks
from .counts import *
from .features import *
from .parts import *
from .walks import *

__all__: list[str] = []
__all__ += walks.__all__
__all__ += features.__all__
__all__ += counts.__all__
__all__ += parts.__all__

_later: Any = announce(
    __name__, "this analysis of graphs is not there yet; post_order_visit shows all expressions"
)


def __getattr__(name: str) -> Any:
    return _later(name)
