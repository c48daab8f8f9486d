"""Questions about graph expressions."""

# ruff: noqa: F403
from ...absent import attributes
from . import (
    annotated_regions,
    calibration,
    counts,
    features,
    kinds,
    parts,
    sparse_conv2d,
    sparse_dense,
    sparse_weights,
    walks,
)
from .annotated_regions import *
from .calibration import *
from .counts import *
from .features import *
from .kinds import *
from .parts import *
from .sparse_weights import *
from .walks import *

__all__: list[str] = []
__all__ += annotated_regions.__all__
__all__ += calibration.__all__
__all__ += walks.__all__
__all__ += features.__all__
__all__ += counts.__all__
__all__ += parts.__all__
__all__ += sparse_weights.__all__
__all__ += kinds.__all__

__getattr__ = attributes(__name__)
