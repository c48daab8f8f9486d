"""Questions about graph expressions."""

# ruff: noqa: F403
from ...absent import attributes
from . import counts, features, kinds, parts, walks
from .counts import *
from .features import *
from .kinds import *
from .parts import *
from .walks import *

__all__: list[str] = []
__all__ += walks.__all__
__all__ += features.__all__
__all__ += counts.__all__
__all__ += parts.__all__
__all__ += kinds.__all__

__getattr__ = attributes(__name__)
