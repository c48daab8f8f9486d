"""What a rule of layouts that a program registers returns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class InferCorrectLayoutOutput:
    """The layouts in which a call takes its arguments and gives its results, and its attributes then."""

    def __init__(self, input_layouts: Sequence[Any], output_layouts: Sequence[Any], new_attrs: Any) -> None:
        self.input_layouts, self.output_layouts = list(input_layouts), list(output_layouts)
        self.new_attrs = new_attrs
