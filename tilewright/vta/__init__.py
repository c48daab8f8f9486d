"""An example accelerator: load, compute and store engines that run side by side and wait for each other by tokens.

    inp ◀──┐                ┌──▶ gemm ──▶┐
           ├── load ◀─ DRAM │            acc ──▶ store ──▶ DRAM
    wgt ◀──┘                └──▶ alu  ──▶┘

`Config` describes the chip, `isa` its instructions, `driver` encodes commands, `simulator` runs them in cycles.
"""

from __future__ import annotations

from ..absent import attributes
from ..homes import lazily
from .device import dram

_MODULES = (
    "assembler binary build_module chip config device driver environment errors intrin isa layout module simulator "
    "testing top"
)
_NAMES = {
    "binary": "Program",
    "build_module": "build build_config lower",
    "config": "Config current_config",
    "environment": "Environment get_env",
    "module": "load_program",
    "top": "graph_pack",
}
__getattr__ = lazily(__name__, _NAMES, _MODULES, attributes(__name__))


def __dir__() -> list[str]:
    return sorted({*globals(), *" ".join([_MODULES, *_NAMES.values()]).split()})


dram()  # arrays can be made on `ext_dev(0)`; its memory is mapped when the first one is
