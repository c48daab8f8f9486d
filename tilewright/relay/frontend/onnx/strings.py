"""Tensors of strings: int64 numbers of an ONNX model's strings (`runtime/words.py`).

What only moves elements moves numbers. Strings that are compared or looked up are so by their numbers. An operator that
makes strings of others is refused.
"""

from __future__ import annotations

from typing import Any, Final

from .context import Node, Value

STRING: Final = 8  # its number as an element type of ONNX
# Operators that move elements: the inputs that hold them; their results are strings too.
_MOVES: Final[dict[tuple[str, str], tuple[int, ...] | None]] = {
    **{
        ("", name): (0,)
        for name in (
            "Identity", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose", "Gather", "GatherElements",
            "GatherND", "Slice", "Split", "Tile", "Expand", "Compress", "Pad",
        )
    },
    ("", "Concat"): None,  # all
    ("", "Where"): (1, 2),
    ("ai.onnx.ml", "ArrayFeatureExtractor"): (0,),
}  # fmt: skip
# Operators that look strings up; their converters say what they return.
_READS: Final = {
    ("", name) for name in ("Equal", "Shape", "Size", "If")
} | {("ai.onnx.ml", name) for name in ("LabelEncoder", "OneHotEncoder", "CategoryMapper")}  # fmt: skip


def refuse_work(n: Node) -> None:
    """Refuse a node that would compute with the numbers of strings."""
    key = "" if n.domain == "ai.onnx" else n.domain, n.op_type
    if key in _READS or not any(v is not None and v.elem == STRING for v in n.inputs):
        return
    if key not in _MOVES:
        raise n.refuse(
            "strings are not computed with here: they only pass through, are compared and looked up in tables"
        )


def marked(n: Node, results: list[Value | None]) -> list[Value | None]:
    """The results of a node that moves strings, as strings."""
    key = "" if n.domain == "ai.onnx" else n.domain, n.op_type
    if key not in _MOVES:
        return results
    held = _MOVES[key]
    places = range(len(n.inputs)) if held is None else held
    given = [n.inputs[i] for i in places if i < len(n.inputs)]
    if any(v is not None and v.elem == STRING for v in given):
        for v in results:
            if v is not None:
                v.elem = STRING
    return results


def numbers_of(n: Node, words: Any) -> list[int]:
    """The numbers of strings of an attribute."""
    return [n.importer.words.number(w) for w in words]


def as_strings(made: Any) -> Value:
    """A result that has numbers of strings."""
    return Value(made, elem=STRING)
