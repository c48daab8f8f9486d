"""The spellings of operator calls in a script, and the result type of each.

    T.exp(x)                           the type follows from the arguments
    T.call_extern("int32", "f", x)     the type comes first
    T.tvm_struct_get(a, 0, 1, "handle")  the type comes last
    T.tvm_storage_sync("shared")       the type is always the same; another one is said: dtype="void"
    T.call_intrin("float16", "tir.exp", x)  exactly this call, whatever `T.exp` would make of it

Printer and parser both use these tables, so that they agree.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from . import ops
from .dtype import INT32, DataType
from .expr import Call, convert
from .op import ELEMENTWISE, Op
from .words import dot_of_words, pack_word

_FIRST = (
    "call_extern call_pure_extern call_llvm_intrin call_llvm_pure_intrin call_spirv_pure_glsl450 reinterpret "
    "type_annotation large_uint_imm ptx_mma ptx_mma_sp ptx_ldmatrix ptx_cp_async ptx_cp_async_bulk mma_store "
    "mma_fill vectorlow vectorhigh vectorcombine get_active_lane_mask dp4a"
)
DTYPE_FIRST: Final = frozenset(_FIRST.split())
DTYPE_LAST: Final = frozenset(["tvm_struct_get"])

_FIXED: Final = {
    "handle": "tvm_access_ptr tvm_stack_make_array tvm_stack_make_shape tvm_stack_alloca tvm_static_handle "
    "tvm_tuple tvm_thread_context TVMBackendAllocWorkspace tvm_load_matrix_sync tvm_mma_sync tvm_bmma_sync "
    "tvm_fill_fragment tvm_store_matrix_sync tvm_thread_allreduce address_of lookup_param",
    "bool": "isnullptr assume",
}
_fixed: Final = {name: DataType(kind) for kind, names in _FIXED.items() for name in names.split()}


def _like_first(name: str) -> Callable[..., Any]:
    """A call of the type of its first argument."""
    op = Op.get(f"tir.{name}")

    def build(*args: Any) -> Call:
        held = tuple(convert(a) for a in args)
        return Call(held[0].dtype, op, held)

    return build


# The functions that build a call and find its type themselves: those of `ops`, where there is one.
INFERRED: Final[dict[str, Callable[..., Any]]] = {
    name: getattr(ops, name, None) or _like_first(name)
    for name in [*ELEMENTWISE, "ret", "assume", "undef", "address_of", "call_packed"]
    if name not in DTYPE_FIRST
} | {
    "pack_word": lambda *args: pack_word(*map(convert, args)),
    "dp2a": lambda *args: dot_of_words(2, *map(convert, args)),
}


def default_dtype(name: str) -> DataType:
    """The type of a call of operator `name` where none is written."""
    return _fixed.get(name, INT32)


def infers_back(e: Call, name: str) -> bool:
    """Whether `T.name(args)` gives exactly `e` again."""
    try:
        made = INFERRED[name](*e.args)
    except (TypeError, ValueError, ZeroDivisionError):
        return False
    return (
        made.__class__ is Call
        and made.op is e.op
        and made.dtype is e.dtype
        and len(made.args) == len(e.args)
        and all(x is y for x, y in zip(made.args, e.args, strict=True))
    )
