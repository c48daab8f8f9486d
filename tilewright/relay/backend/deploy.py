"""The C interface of a model: a function that needs no memory from outside, and a header."""

from __future__ import annotations

from typing import Any

from ...codegen.llvm.linked import LinkedModule, Unit
from ...runtime.cheader import c_header
from ...runtime.metadata import LibraryInfo
from ...runtime.model import ModelInfo


def standalone_unit(model: ModelInfo, library: LinkedModule) -> Unit:
    """A function of only the inputs and results: the weights and the workspace are in the library."""
    machine = library.machine
    count = len(model.inputs) + len(model.outputs)
    symbol, entry = f"tvmgen_{model.name}", model.entry
    params = ", ".join(f"ptr %a{i}" for i in range(count))
    kinds = ", ".join(["ptr"] * (count + 2))
    passed = ", ".join(
        [*(f"ptr %a{i}" for i in range(count)), f"ptr @{model.weights_symbol}", "ptr @workspace"]
    )
    text = f"""target triple = "{machine.triple}"
@{model.weights_symbol} = external constant [{model.weights} x i8], align 64
@workspace = internal global [{model.arena} x i8] zeroinitializer, align 64
declare i32 @{entry}({kinds})
define i32 @{symbol}({params}) {{
  %code = call i32 @{entry}({passed})
  ret i32 %code
}}
"""
    (about,) = (f for f in library.description["functions"] if f["name"] == entry)
    described: dict[str, Any] = {**about, "name": symbol, "symbol": symbol, "params": about["params"][:count]}
    described["apart"] = [pair for pair in about.get("apart", ()) if max(pair[:2]) < count]
    return Unit(machine.object_code(machine.parse(text)), (described,), (), False)


def model_header(info: LibraryInfo, model: ModelInfo, inside: bool) -> str:
    """The C header of a model."""
    symbol = f"tvmgen_{model.name}"
    text = c_header(info, model.name)
    upper = symbol.upper()
    more = [
        f"#define {upper}_WORKSPACE_BYTES {model.arena}",
        f"#define {upper}_WEIGHTS_BYTES {model.weights}",
        "",
    ]
    if inside:
        own = c_header_of(info, model)
        more += [
            f"/* The weights, for {model.entry}. */",
            f"extern const uint8_t {model.weights_symbol}[{upper}_WEIGHTS_BYTES];",
            "",
            "/* Runs the model with its weights and workspace of its own: one call at a time.",
            f" * {model.entry} takes the workspace (aligned to 64 bytes) from the caller, so that several may run. */",
            own,
            "",
        ]
    mark = "/* The message of the last error, of any thread. */"
    return text.replace(mark, "\n".join(more) + mark)


def c_header_of(info: LibraryInfo, model: ModelInfo) -> str:
    """The prototype of the self-contained function."""
    from dataclasses import replace

    from ...runtime.cheader import prototype

    entry = info.functions[model.entry]
    count = len(model.inputs) + len(model.outputs)
    symbol = f"tvmgen_{model.name}"
    return (
        prototype(replace(entry, name=symbol, symbol=symbol, params=entry.params[:count], symbols=())) + ";"
    )
