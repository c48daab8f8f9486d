"""A property of an operator, changed for a while."""

from __future__ import annotations

from typing import Any

from ..op.registry import get


class TempOpAttr:
    """`with TempOpAttr("nn.conv2d", "FTVMLegalize", f): …` gives the operator a property inside the block."""

    def __init__(self, op_name: str, attr_key: str, attr_value: Any) -> None:
        self.op, self.key, self.value = get(op_name), attr_key, attr_value
        self.before: Any = None

    def __enter__(self) -> TempOpAttr:
        self.before = self.op.get_attr(self.key)
        self.op.set_attr(self.key, self.value, 100)
        return self

    def __exit__(self, *exc: object) -> None:
        self.op.reset_attr(self.key)
        if self.before is not None:
            self.op.set_attr(self.key, self.before)
