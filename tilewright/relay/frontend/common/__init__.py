"""Common parts of importers: types of intermediate expressions, and layers that several frameworks share."""

from .imported import fold_constant as fold_constant
from .imported import get_relay_op as get_relay_op
from .imported import infer_channels as infer_channels
from .imported import infer_shape as infer_shape
from .imported import infer_type as infer_type
from .imported import infer_value as infer_value
from .imported import new_var as new_var
