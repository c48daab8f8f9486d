"""Modules that have a classic name beside their own: one table.

    from tilewright.driver.tvmc.frontends import load_model      # the module tilewright.tvmc.frontends

Both names give the very same module.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec, spec_from_file_location
from types import ModuleType
from typing import Final

# classic name -> where it is; what is below goes along
MOVED: Final = {
    "contrib.graph_runtime": "contrib.graph_executor",
    "contrib.util": "contrib.utils",
    "driver.automatic": "tune.auto",
    "driver.build": "compiler.build",
    "driver.build_module": "compiler.build_module",
    "driver.lower": "compiler.lower",
    "driver.tvmc": "tvmc",
    "instrument": "ir.instrument",
    "ir.adt": "relay.adt",
    "ir.attrs": "relay.op.attributes",
    "ir.container": "runtime.container",
    "parser": "relay.parser",
    "relay.backend.runtime": "relay.backend.executor",
    "relay.op.contrib": "relay.contrib",
    "relay.qnn.op.legalizations": "relay.qnn.legalizations",
    "relay.qnn.transform": "relay.transform.canonicalize_qnn",
    "script.parser": "script",
    "tir.buffer": "ir.buffer",
    "tir.data_layout": "ir.data_layout",
    "tir.function": "tir",
    "tir.generic": "ir.ops",
    "tir.op": "tir",
    "tir.stmt": "ir.stmt",
    "tir.transform.transform": "tir.transform",
}
# Classic modules whose names are those of their package here.
WITHIN: Final = {
    "_ffi": "registry",
    "arith": "bound int_solver iter_affine_map pattern",
    "autotvm.measure": "executor",
    "ir": "json_compact type type_relation",
    "relay.analysis": "analysis call_graph feature",
    "relay.op.nn": "nn",
    "relay.op.vision": "multibox nms rcnn yolo",
    "relay.qnn.op": "canonicalizations layout_conversions qnn",
    "relay.transform": "transform",
    "runtime": "object_generic packed_func support",
    "te": "tag",
    "testing": "utils",
    "tir.analysis": "analysis",
    "tir.schedule": "instruction transform",
    "tir.transform": "function_pass",
    "topi": "scan tensor",
    "topi.nn": "bitserial_conv2d bitserial_util bnn conv1d_transpose conv2d_transpose conv3d_transpose elemwise "
    "local_response_norm mapping winograd_util",
    "topi.vision": "nms_util",
}
_ALIASES: Final = {
    **MOVED,
    **{f"{home}.{word}": home for home, words in WITHIN.items() for word in words.split()},
}
_PACKAGE: Final = __name__.partition(".")[0] + "."


def _own_name(fullname: str) -> str | None:
    path = fullname.removeprefix(_PACKAGE)
    for classic, own in _ALIASES.items():
        if path == classic or path.startswith(classic + "."):
            return _PACKAGE + own + path.removeprefix(classic)
    return None


class _Moved(MetaPathFinder, Loader):
    """The import hook."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        own = _own_name(fullname) if fullname.startswith(_PACKAGE) else None
        there = None if own is None else find_spec(own)
        if there is None or there.origin is None:
            return None
        if fullname.endswith(".__main__"):  # `python -m` runs a file
            return spec_from_file_location(fullname, there.origin)
        return ModuleSpec(fullname, self, is_package=there.submodule_search_locations is not None)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        own = _own_name(spec.name)
        assert own is not None
        made = import_module(own)
        spec.loader_state = made.__spec__
        return made

    def exec_module(self, module: ModuleType) -> None:
        """It ran already, under its own name, which it keeps."""
        assert module.__spec__ is not None
        module.__spec__ = module.__spec__.loader_state


if not any(isinstance(finder, _Moved) for finder in sys.meta_path):
    sys.meta_path.insert(0, _Moved())
