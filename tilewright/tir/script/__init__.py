"""The parser of scripts: `@T.prim_func`, `@I.ir_module`, `from_source`."""

from .function import from_source, ir_module, macro, prim_func
from .parser import Macro
from .specs import BufferSpec

__all__ = ["BufferSpec", "Macro", "from_source", "ir_module", "macro", "prim_func"]
