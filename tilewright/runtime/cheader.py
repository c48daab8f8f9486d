"""A plain C header for a compiled library, so that a C program calls it with nothing installed."""

from __future__ import annotations

import re

from .dtypes import ELEMENTS
from .metadata import BufferParam, FunctionInfo, LibraryInfo, ScalarParam, dim_text


def c_header(info: LibraryInfo, name: str = "library") -> str:
    """The header of a library: one documented prototype for each function."""
    guard = "TILEWRIGHT_" + re.sub(r"\W", "_", name).upper() + "_H"
    parts = [
        f"/* {_comment(name)}: made by {_comment(info.producer)} for {_comment(info.target)}.",
        " *",
        " * Every function returns 0 on success. Otherwise __tw_last_error() returns the error message.",
        " * Arrays are dense and row-major unless a comment says otherwise. One that is written must not overlap",
        " * another argument, unless it is the same array and the function works element by element.",
        " * Functions have no state and may be called from several threads at once, on arrays of their",
        " * own. Parallel loops share one pool of threads: of calls at the same time, one uses it.",
        " */",
        f"#ifndef {guard}",
        f"#define {guard}",
        "",
        "#include <stdint.h>",
        "",
        "#ifdef __cplusplus",
        'extern "C" {',
        "#endif",
        "",
        "/* The message of the last error, of any thread. */",
        "const char* __tw_last_error(void);",
        "",
    ]
    for function in info.functions.values():
        parts += [*_documentation(function), prototype(function) + ";", ""]
    parts += ["#ifdef __cplusplus", "}", "#endif", "", f"#endif /* {guard} */", ""]
    return "\n".join(parts)


def prototype(function: FunctionInfo) -> str:
    """The C prototype of a function: `int32_t mult(const float* A, float* B, int32_t n)`."""
    arguments = []
    taken: set[str] = set()
    for param in function.params:
        if isinstance(param, ScalarParam):
            kind = "void*" if param.dtype == "handle" else ELEMENTS[param.dtype].c_name
        else:
            kind = f"{'const ' if param.access == 'r' else ''}{_c_type(param.dtype)}*"
        arguments.append(f"{kind} {_identifier(param.name, taken)}")
    for symbol in function.symbols:
        arguments.append(f"{ELEMENTS[symbol.dtype].c_name} {_identifier(symbol.name, taken)}")
    if function.ret is not None:
        arguments.append(f"{_c_type(function.ret)}* {_identifier('result', taken)}")
    return f"int32_t {function.symbol}({', '.join(arguments) or 'void'})"


def _c_type(dtype: str) -> str:
    return "void*" if dtype == "handle" else ELEMENTS[dtype].c_name


def _documentation(function: FunctionInfo) -> list[str]:
    lines = [f"/* {_comment(function.name)}"]
    for param in function.params:
        if isinstance(param, BufferParam):
            shape = "".join(f"[{dim_text(dim)}]" for dim in param.shape)
            text = f"{param.dtype}{shape}, {_ACCESS[param.access]}, aligned to {param.align} bytes"
            if param.strides is not None:
                text += f", strides ({', '.join(dim_text(dim) for dim in param.strides)}) in elements"
            if param.device != "cpu":
                text += f", on {param.device}"
        else:
            text = param.dtype
        lines.append(f" *   {_comment(param.name)}: {_comment(text)}")
    for name, (index, kind, axis) in function.sources().items():
        what = "extent" if kind == "shape" else "stride"
        lines.append(
            f" *   {_comment(name)}: {what} of axis {axis} of {_comment(function.params[index].name)}"
        )
    if function.ret is not None:
        lines.append(f" *   result: {function.ret}, where the result is stored; 8 bytes")
    return [*lines, " */"]


_ACCESS = {"r": "read", "w": "written", "rw": "read and written"}
_KEYWORDS = re.compile(
    r"(auto|break|case|char|const|continue|default|do|double|else|enum|extern|float|for|goto|if|"
    r"inline|int|long|register|restrict|return|short|signed|sizeof|static|struct|switch|typedef|"
    r"union|unsigned|void|volatile|while|bool|class|new|delete|this|template|namespace|operator|"
    r"private|public|protected|virtual)"
)


def _identifier(name: str, taken: set[str]) -> str:
    """A name that C accepts and that is not used yet."""
    text = re.sub(r"\W", "_", name, flags=re.ASCII) or "_"
    if text[0].isdigit() or _KEYWORDS.fullmatch(text):
        text = f"_{text}" if text[0].isdigit() else f"{text}_"
    while text in taken:
        text += "_"
    taken.add(text)
    return text


def _comment(text: str) -> str:
    """Text that cannot end a comment."""
    return text.replace("*/", "* /")
