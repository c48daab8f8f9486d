"""The library of functions over algebraic data types: texts that a module imports.

mod.import_from_std("prelude.rly")        # List, Option, Tree, map, foldl, …
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ...ir.errors import TVMError
from ..parser import parse
from ..transform.infer_type import infer_functions

_HERE = Path(__file__).parent


def import_from_std(mod: Any, name: str) -> None:
    """Add the functions and types of a file of the library to a module, where it does not have them yet."""
    path = _HERE / name
    if path.parent != _HERE or not path.is_file():
        known = ", ".join(sorted(p.name for p in _HERE.glob("*.rly")))
        raise TVMError(f"import_from_std({name!r}): there is no such file in the library; it has {known}")
    _add(mod, path)


def import_file(mod: Any, path: str) -> None:
    """Add the functions and types of a text file to a module."""
    if not Path(path).is_file():
        raise TVMError(f"import_({path!r}): there is no such file")
    _add(mod, Path(path))


def _add(mod: Any, path: Path) -> None:
    before = set(mod.functions)
    made = parse(path.read_text(), path.name, mod, overwrite=False)
    infer_functions(made, [gv for gv in made.functions if gv not in before])
    for t, data in made.type_definitions.items():
        mod.type_definitions[t] = data
    for gv, f in made.functions.items():
        mod.functions[gv] = f
