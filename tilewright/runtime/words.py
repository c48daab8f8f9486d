"""Strings of a model. It computes with their numbers; strings are numbered before a call and written out after it.

    ["a", "b"]  the strings that the model knows       x: ["b", "new"]  ->  [1, 2]       [2, 0]  ->  ["new", "a"]

A string that the model does not know gets a number of its own for the call, so that strings only pass through, are
compared, and are looked up in tables.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np


class Words(NamedTuple):
    """The strings that a model knows, and its inputs and results that are strings, by name."""

    known: tuple[str, ...]
    inputs: frozenset[str]
    outputs: frozenset[str]

    @classmethod
    def of(cls, data: Mapping[str, Iterable[str]] | None) -> Words | None:
        if not data:
            return None
        return cls(tuple(data["words"]), frozenset(data["inputs"]), frozenset(data["outputs"]))

    def data(self) -> dict[str, Any]:
        return {"words": list(self.known), "inputs": sorted(self.inputs), "outputs": sorted(self.outputs)}


class Numbering:
    """Numbers of strings, the given ones first, others as they come."""

    def __init__(self, known: Sequence[str] = ()) -> None:
        self.words = list(known)
        self._numbers = {word: i for i, word in enumerate(self.words)}

    def number(self, word: Any) -> int:
        text = word.decode("utf-8") if isinstance(word, bytes) else str(word)
        found = self._numbers.setdefault(text, len(self.words))
        if found == len(self.words):
            self.words.append(text)
        return found

    def encoded(self, value: Any) -> np.ndarray[Any, Any]:
        held = np.asarray(value, object)
        return np.fromiter(map(self.number, held.flat), np.int64, held.size).reshape(held.shape)

    def decoded(self, numbers: Any) -> np.ndarray[Any, Any]:
        held = np.asarray(numbers)
        made = np.empty(held.size, object)
        made[:] = [self.words[i] for i in held.flat]
        return made.reshape(held.shape)
