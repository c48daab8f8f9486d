"""The code generator `ccompiler`: a function of elementwise operators as C source, as machine code for the model."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ...codegen.llvm.engine import Machine, process_triple
from ...codegen.llvm.linked import LinkedModule, Unit
from ...codegen.llvm.objects import VERSION
from ...ir.errors import BuildError
from ...runtime import link
from ..expr import Call, Constant, Function, Tuple, Var
from ..ty import TensorType, tensor_fields
from .ccompiler import C_TYPES, EXPRESSIONS, takes


def c_module(
    source: str,
    functions: Mapping[str, Sequence[tuple[str, str, Sequence[int], str]]],
    options: Sequence[str] = (),
) -> LinkedModule:
    """C source as a module: a code generator that returns it has its code linked into the model.

        c_module("int32_t twice(const float* a, float* b) {…}",
                 {"twice": [("a", "float32", (8,), "r"), ("b", "float32", (8,), "w")]})

    Each function takes pointers to dense arrays (name, type, shape, and whether it is read or written) and returns 0.
    """
    with tempfile.TemporaryDirectory(prefix="tilewright-") as folder:
        path, made = os.path.join(folder, "code.c"), os.path.join(folder, "code.o")
        Path(path).write_text(source)
        link.run_cc(["-c", "-O2", "-fPIC", *options, path], made)
        code = Path(made).read_bytes()
    described = tuple(
        {
            "name": name,
            "symbol": name,
            "params": [
                {"kind": "buffer", "name": n, "dtype": t, "shape": list(shape), "access": access}
                for n, t, shape, access in params
            ],
            "symbols": [],
        }
        for name, params in functions.items()
    )
    about = {
        "format": 1,
        "producer": VERSION,
        "triple": process_triple(),
        "functions": list(described),
        "entry": None,
    }
    unit = Unit(code, described, (), False)
    return LinkedModule([unit], Machine(process_triple(), "", "", 2), about, native=True, name="c")


def generate(fn: Function) -> LinkedModule:
    """`relay.ext.ccompiler`: one loop nest for each result, with all operators in its body."""
    name = str(fn.attrs["global_symbol"])
    params = [(f"p{i}", _kind(p.checked_type, name)) for i, p in enumerate(fn.params)]
    fields = fn.body.fields if isinstance(fn.body, Tuple) else (fn.body,)
    outs = [(f"o{i}", _kind(t, name)) for i, t in enumerate(tensor_fields(fn.checked_type.ret_type))]
    work = _Text(name, {p: n for p, (n, _) in zip(fn.params, params, strict=True)})
    bodies = [work.result(out, e) for (out, _), e in zip(outs, fields, strict=True)]
    listed = [
        *(f"const {C_TYPES[str(k.dtype)]}* {n}" for n, k in params),
        *(f"{C_TYPES[str(k.dtype)]}* {n}" for n, k in outs),
    ]
    head = f"int32_t {name}({', '.join(listed)}) {{"
    source = "\n".join(["#include <stdint.h>", *work.arrays, head, *bodies, "  return 0;", "}", ""])
    described = [(n, str(k.dtype), k.shape, "r") for n, k in params]
    described += [(n, str(k.dtype), k.shape, "w") for n, k in outs]
    return c_module(source, {name: described})


def _kind(kind: Any, name: str) -> TensorType:
    if not isinstance(kind, TensorType) or str(kind.dtype) not in C_TYPES:
        raise BuildError(
            f"ccompiler: {name} has a parameter or result of type {kind}; it takes {', '.join(C_TYPES)}"
        )
    return kind


class _Text:
    def __init__(self, name: str, params: Mapping[Var, str]) -> None:
        self.name, self.params = name, params
        self.arrays: list[str] = []
        self.constants: dict[Constant, str] = {}

    def result(self, out: str, expr: Any) -> str:
        """The loops that compute a result."""
        shape = expr.checked_type.shape
        indices = [f"i{k}" for k in range(len(shape))]
        lines: list[str] = []
        value = self.value(expr, indices, lines, {})
        loops = [f"for (int64_t i{k} = 0; i{k} < {n}; ++i{k})" for k, n in enumerate(shape)]
        body = " ".join([*lines, f"{out}[{_offset(shape, indices)}] = {value};"])
        return "  " + " ".join([*loops, "{", body, "}"])

    def value(self, e: Any, indices: list[str], lines: list[str], known: dict[Any, str]) -> str:
        """The element of an expression at indices of the result, which it may be broadcast to."""
        if e in known:
            return known[e]
        shape = e.checked_type.shape
        own = indices[len(indices) - len(shape) :]
        if isinstance(e, Var):
            return f"{self.params[e]}[{_offset(shape, own)}]"
        if isinstance(e, Constant):
            return f"{self.constant(e)}[{_offset(shape, own)}]"
        name = e.op.name if isinstance(e, Call) else type(e).__name__
        if name not in EXPRESSIONS or not takes(e):
            raise BuildError(
                f"ccompiler: {self.name} has {name}, which it cannot compile; it knows {', '.join(EXPRESSIONS)}"
            )
        args = [self.value(a, indices, lines, known) for a in e.args]
        known[e] = f"t{len(known)}"
        lines.append(f"{C_TYPES[str(e.checked_type.dtype)]} {known[e]} = {EXPRESSIONS[name].format(*args)};")
        return known[e]

    def constant(self, c: Constant) -> str:
        if c not in self.constants:
            made = self.constants[c] = f"c{len(self.constants)}"
            data = c.numpy()
            if data.dtype.kind == "f":
                values = ", ".join(float(v).hex() for v in data.ravel())
            else:
                values = ", ".join(str(int(v)) for v in data.ravel())
            self.arrays.append(f"static const {C_TYPES[str(c.data.dtype)]} {made}[] = {{{values}}};")
        return self.constants[c]


def _offset(shape: Sequence[int], indices: Sequence[str]) -> str:
    """The place of an element in a dense array; an index of a dimension of 1 is 0."""
    text = "0"
    for n, i in zip(shape, indices, strict=True):
        text = f"({text}) * {n} + {i}" if n != 1 else text
    return text
