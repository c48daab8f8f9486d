"""The meaning of commands, in NumPy: one after the other, in program order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np

from tilewright.runtime.accelerator import Command
from tilewright.vta.config import Config


class Reference:
    """The buffers of a chip as arrays, and a method for each command."""

    def __init__(self, config: Config, arguments: Sequence[np.ndarray[Any, Any]]) -> None:
        self.config = config
        self.arguments = [np.ascontiguousarray(a).view(np.uint8).reshape(-1).copy() for a in arguments]
        self.buffers = {
            name: np.zeros((m.depth, *m.shape), m.dtype)
            for name, m in config.memories.items()
            if name in ("inp", "wgt", "acc")
        }

    def run(self, commands: Sequence[Command]) -> list[np.ndarray[Any, Any]]:
        for command in commands:
            getattr(self, command.name)(command.fields)
        return self.arguments

    def _elements(self, name: str, argument: int) -> np.ndarray[Any, Any]:
        memory = self.config.memories[name]
        return self.arguments[argument].view(memory.dtype).reshape(-1, *memory.shape)

    def nop(self, f: Mapping[str, Any]) -> None:
        pass

    def load(self, f: Mapping[str, Any]) -> None:
        name, address = f["memory"], f["dram"]
        buffer = self.buffers["acc" if name == "acc8" else name]
        first = address.offset // self.config.memories[name].element_bytes
        top, bottom, left, right = f.get("pad", (0, 0, 0, 0))
        at = f["sram"]
        for row in range(-top, f["rows"] + bottom):
            for column in range(-left, f["columns"] + right):
                inside = 0 <= row < f["rows"] and 0 <= column < f["columns"]
                source = first + row * f["stride"] + column
                buffer[at] = self._elements(name, address.argument)[source] if inside else 0
                at += 1

    def store(self, f: Mapping[str, Any]) -> None:
        name, address = f["memory"], f["dram"]
        first = address.offset // self.config.memories[name].element_bytes
        for row, column in product(range(f["rows"]), range(f["columns"])):
            value = self.buffers["acc"][f["sram"] + row * f["columns"] + column]
            target = self._elements(name, address.argument)
            target[first + row * f["stride"] + column] = value.astype(target.dtype)

    def gemm(self, f: Mapping[str, Any]) -> None:
        acc, inp, wgt = (self.buffers[n] for n in ("acc", "inp", "wgt"))
        for where in product(*(range(loop[0]) for loop in f.get("loops", ()))):
            a, i, w = (
                f.get(n, 0) + sum(k * loop[m] for k, loop in zip(where, f.get("loops", ())))
                for m, n in ((1, "acc"), (2, "inp"), (3, "wgt"))
            )
            acc[a] = 0 if f.get("reset") else acc[a] + inp[i].astype(acc.dtype) @ wgt[w].astype(acc.dtype).T

    def alu(self, f: Mapping[str, Any]) -> None:
        acc = self.buffers["acc"]
        for where in product(*(range(loop[0]) for loop in f.get("loops", ()))):
            d, s = (
                f[n] + sum(k * loop[m] for k, loop in zip(where, f.get("loops", ())))
                for m, n in ((1, "dst"), (2, "src"))
            )
            if f.get("imm") is None:
                acc[d] = self._op(f["op"], acc[d], acc[s])
            else:
                acc[d] = self._op(f["op"], acc[s], np.full_like(acc[s], f["imm"]))

    @staticmethod
    def _op(op: str, a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        most = a.dtype.itemsize * 8 - 1
        with np.errstate(over="ignore"):
            return {
                "min": lambda: np.minimum(a, b),
                "max": lambda: np.maximum(a, b),
                "add": lambda: a + b,
                "mul": lambda: a * b,
                "shr": lambda: np.where(b >= 0, a >> np.clip(b, 0, most), a << -np.clip(b, -most, 0)).astype(
                    a.dtype
                ),
            }[op]()
