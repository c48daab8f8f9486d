"""Steps with their random choices decided.

v0, v1 = sample_perfect_tile(l0, n=2)  # decision [4, 4]
split(l0, factors=[v0, v1])                                     ->      split(l0, factors=[4, 4])

So a record has only steps that a search writes, which are safe to read from a file.
"""

from __future__ import annotations

from typing import Any

from ..ir.errors import UnsupportedError

_TILES = ("sample_perfect_tile", "sample_partitioned_tile")


def decided(trace: Any) -> Any:
    """The JSON of a trace, without the steps that draw: their values stand where they are used."""
    values: dict[str, Any] = {}
    steps = []
    for step in trace["steps"]:
        kind = step["step"]
        if kind in _TILES:
            values.update(zip(step["outputs"], step["decision"], strict=True))
        elif kind == "sample_categorical":
            (name,) = step["outputs"]
            values[name] = step["kwargs"]["candidates"][step["decision"]]
        elif kind.startswith("sample_"):
            raise UnsupportedError(
                f"{kind}: a place that is drawn cannot be kept in a record; choose one with sample_categorical, and "
                "call compute_at with it"
            )
        else:
            steps.append({key: _known(value, values) for key, value in step.items()})
    return {**trace, "steps": steps}


def _known(value: Any, values: dict[str, Any]) -> Any:
    if isinstance(value, dict):
        if set(value) == {"ref"}:
            return values.get(value["ref"], value)
        return {k: _known(v, values) for k, v in value.items()}
    return [_known(v, values) for v in value] if isinstance(value, list) else value
