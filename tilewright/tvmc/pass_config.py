"""Options of passes on the command line: `--pass-config tir.disable_vectorize=true`."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any, Final

from ..ir.transform import PassContext
from ..runtime.registry import get_global_func
from .errors import TVMCException

_PACKAGE: Final = __name__.partition(".")[0]
_ADDED: Final = "tir.add_lower_pass"


def load_function(full_name: str) -> Any:
    """A function by its name: a registered one, else one of this package (`tir.transform.UnrollLoop`, with or without
    `tvm.`), else one of a Python module (`module.function`)."""
    found = get_global_func(full_name, allow_missing=True)
    if found is not None:
        return found
    module, _, name = full_name.rpartition(".")
    own = f"{_PACKAGE}.{module.removeprefix('tvm').removeprefix(_PACKAGE).strip('.')}".rstrip(".")
    try:
        home = import_module(own)
    except ModuleNotFoundError:
        home = import_module(module or full_name)
    if not hasattr(home, name):
        raise TVMCException(f"the module {module} has no function {name!r}")
    return getattr(home, name)


def get_pass_config_value(name: str, value: str, config_type: str) -> Any:
    """The value of an option from text, as the type of the option asks."""
    word = {"true": True, "false": False}.get(value.lower())
    number = int(value) if value.lstrip("+-").isdigit() else None
    if config_type in ("bool", "int", "IntImm"):
        found = number if number is not None else word
        if found is None:
            raise TVMCException(f"--pass-config {name}={value}: the value is a number, true or false")
        return bool(found) if config_type == "bool" else int(found) if number is not None else found
    if name == _ADDED:
        return _passes(value)
    if config_type in ("str", "runtime.String"):
        return value
    if config_type in ("Any", "object"):
        return number if number is not None else value if word is None else word
    raise TVMCException(
        f"--pass-config {name}={value}: an option of type {config_type} cannot be written on the command line; set it "
        "in Python with tvm.transform.PassContext"
    )


def _passes(value: str) -> list[tuple[int, Any]]:
    """`1,tir.transform.UnrollLoop,2,module.my_pass` as pairs of a level and a pass."""
    parts = [p.strip() for p in value.split(",")]
    form = f"--pass-config {_ADDED}={value}: it is level,pass,level,pass, as in 1,tir.transform.UnrollLoop"
    if len(parts) % 2:
        raise TVMCException(form)
    pairs = list(zip(parts[::2], parts[1::2], strict=True))
    if not all(level.isdigit() for level, _ in pairs):
        raise TVMCException(f"{form}; a level is a number")
    return [(int(level), load_function(name)()) for level, name in pairs]


def parse_configs(input_configs: Sequence[str] | None) -> dict[str, Any]:
    """The options of passes in texts `name=value`; an option that is a list may be given more than once."""
    known = PassContext.list_configs()
    found: dict[str, Any] = {}
    for text in input_configs or ():
        name, sign, value = (part.strip() for part in text.partition("="))
        if not sign or not name:
            raise TVMCException(
                f"--pass-config {text!r}: it is name=value, as in --pass-config tir.disable_vectorize=true"
            )
        if name not in known:
            raise TVMCException(
                f"--pass-config {text!r}: there is no option {name!r}; there are {', '.join(known)}"
            )
        made = get_pass_config_value(name, value, str(known[name]["type"]))
        found[name] = [*found.get(name, ()), *made] if isinstance(made, list) else made
    return found
