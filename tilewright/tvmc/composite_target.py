"""Code generators of others that a composite target names: `--target "dnnl, llvm"`.

A row is the name of the code generator, the function that moves a graph's operators to it, and the option of
PassContext that its own options go to.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from inspect import signature
from typing import Any, Final

from ..ir.errors import UnsupportedError
from .errors import TVMCException

_CONTRIB = f"{__name__.partition('.')[0]}.relay.op.contrib"


def _pipeline(name: str, module: str) -> Callable[..., Any]:
    """The function that partitions a graph for a code generator; its module is imported when it is called."""

    def partition(mod: Any, params: Any = None, mod_name: str = "", **options: Any) -> Any:
        try:
            found = getattr(import_module(f"{_CONTRIB}.{module}"), f"partition_for_{module}")
            return found(mod, params, **_taken(name, found, options))
        except (UnsupportedError, ImportError, AttributeError) as error:
            raise TVMCException(
                f"--target {name}: there is no code generator {name!r} here ({error}); leave it out of the target, "
                "and its operators are compiled for the last target that is named"
            ) from None

    return partition


def _taken(name: str, partition: Callable[..., Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a code generator as its function takes them: switches."""
    known = [p.name for p in signature(partition).parameters.values() if isinstance(p.default, bool)]
    words = {"1": True, "true": True, "0": False, "false": False}
    for option, value in options.items():
        if option not in known or str(value).lower() not in words:
            takes = ", ".join(f"-{k}=0 or 1" for k in known) or "no options"
            raise TVMCException(f"--target {name} -{option}={value}: {name} takes {takes}")
    return {option: words[str(value).lower()] for option, value in options.items()}


# name: module of relay.op.contrib, option of PassContext
_ROWS: Final = {
    "compute-library": ("arm_compute_lib", None),
    "cmsis-nn": ("cmsisnn", "relay.ext.cmsisnn.options"),
    "ethos-n": ("ethosn", "relay.ext.ethos-n.options"),
    "ethos-u": ("ethosu", "relay.ext.ethos-u.options"),
    "bnns": ("bnns", None),
    "vitis-ai": ("vitis_ai", "relay.ext.vitis_ai.options"),
    "clml": ("clml", None),
    "mrvl": ("mrvl", "relay.ext.mrvl.options"),
    "dnnl": ("dnnl", None),
    "onnxruntime": ("onnxruntime", None),
    "tensorrt": ("tensorrt", "relay.ext.tensorrt.options"),
    "cutlass": ("cutlass", None),
}
REGISTERED_CODEGEN: Final[dict[str, Mapping[str, Any]]] = {
    name: {"config_key": key, "pass_default": name == "mrvl", "pass_pipeline": _pipeline(name, module)}
    for name, (module, key) in _ROWS.items()
}


def get_codegen_names() -> list[str]:
    """The names of the code generators that a target may begin with."""
    return list(REGISTERED_CODEGEN)


def get_codegen_by_target(name: str) -> Mapping[str, Any]:
    """The row of a code generator: `config_key`, `pass_default` and `pass_pipeline`."""
    if name not in REGISTERED_CODEGEN:
        raise TVMCException(
            f"there is no code generator {name!r} for composite targets; there are {', '.join(REGISTERED_CODEGEN)}"
        )
    return REGISTERED_CODEGEN[name]
