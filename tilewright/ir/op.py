"""The operators of a `Call`: a registry of names with the properties that passes need."""

from __future__ import annotations

import os
from enum import IntEnum
from typing import Any, Final

_registry: dict[str, Op] = {}
# The operators of the graph IR; some have the name of a scalar one without its `tir.`.
graph_operators: dict[str, Op] = {}


class CallEffectKind(IntEnum):
    """The side effect of a call."""

    ExprAnnotation = 0
    Pure = 1
    ReadState = 2
    UpdateState = 3
    Opaque = 4


class Op:
    """An operator. `name` is `tir.exp`; the script form is `T.exp`."""

    __slots__ = ("attrs", "effect", "levels", "name", "vectorizable")

    def __init__(self, name: str, effect: CallEffectKind, vectorizable: bool) -> None:
        self.name, self.effect, self.vectorizable = name, effect, vectorizable
        self.attrs: dict[str, Any] = {}
        self.levels: dict[str, int] = {}  # of the attributes

    @staticmethod
    def get(name: str) -> Op:
        """The operator of that name; both `exp` and `tir.exp` are understood."""
        found = _registry.get(name) or _registry.get(f"tir.{name}") or graph_operators.get(name)
        if found is None:
            import difflib

            near = difflib.get_close_matches(name, [*_registry, *graph_operators], 3)
            hint = f"; did you mean {', '.join(near)}?" if near else ""
            raise ValueError(f"no operator is named {name!r}{hint}")
        return found

    @staticmethod
    def list_op_names() -> list[str]:
        return sorted(_registry)

    @property
    def short_name(self) -> str:
        """The name without `tir.`."""
        return self.name.removeprefix("tir.")

    @property
    def is_pure(self) -> bool:
        return self.effect <= CallEffectKind.Pure

    def get_attr(self, name: str) -> Any:
        return self.attrs.get(name)

    def set_attr(self, name: str, value: Any, plevel: int = 10) -> None:
        """Set an attribute; one that was set at a higher level stays."""
        held = self.levels.get(name, plevel)
        if plevel < held:
            return
        self.attrs[name], self.levels[name] = value, plevel
        if name == "TCallEffectKind":
            self.effect = CallEffectKind(int(value))
        elif name == "TVectorizable":
            self.vectorizable = bool(value)
        elif name.endswith(LOWERING):
            _lowering_rules.append(f"{self.name} {name}")

    def reset_attr(self, name: str) -> None:
        """Remove an attribute."""
        self.attrs.pop(name, None)
        self.levels.pop(name, None)

    def same_as(self, other: object) -> bool:
        return self is other

    def astext(self, show_meta_data: bool = True, annotate: Any = None) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"Op({self.name})"


LOWERING: Final = ".FLowerIntrinsic"  # behind a kind of target: the rule that replaces a call for it
_lowering_rules: Final[list[str]] = []
_process: Final = os.urandom(16).hex()


def rules_key() -> str:
    """What keys of compiled code must hold of the lowering rules of a program: nothing without such rules, else
    something of this process alone, as rules are functions."""
    return f"{_process} {len(_lowering_rules)}" if _lowering_rules else ""


def register_op(name: str, effect: CallEffectKind = CallEffectKind.Pure, *, vectorizable: bool = False) -> Op:
    """Register an operator; a second call with the same name returns the first operator."""
    if name not in _registry:
        _registry[name] = Op(name, effect, vectorizable)
    return _registry[name]


_PURE, _READ = CallEffectKind.Pure, CallEffectKind.ReadState
_UPDATE, _OPAQUE = CallEffectKind.UpdateState, CallEffectKind.Opaque

# Functions of numbers whose result has the type of every argument.
OF_ONE_TYPE: Final = """
    exp exp2 fast_exp2 exp10 log log2 log10 log1p sqrt rsqrt sin cos tan asin acos atan sinh cosh tanh
    asinh acosh atanh erf sigmoid floor ceil trunc round nearbyint fabs abs pow fmod hypot atan2 copysign
    nextafter fma
""".split()

# Element by element: a vector of arguments gives a vector of results.
ELEMENTWISE: Final = [
    *OF_ONE_TYPE,
    *"""
        popcount clz isnan isfinite isinf ldexp bitwise_and bitwise_or bitwise_xor bitwise_not shift_left
        shift_right reinterpret if_then_else likely large_uint_imm q_multiply_shift
        q_multiply_shift_per_axis pack_word dp2a
    """.split(),
]

_OTHERS: Final = {
    _PURE: """
        call_pure_extern call_llvm_pure_intrin call_spirv_pure_glsl450 address_of isnullptr tvm_access_ptr
        tvm_struct_get tvm_stack_alloca tvm_thread_context get_active_lane_mask vectorlow
        vectorhigh vectorcombine dp4a assume_pure type_annotation checked undef tvm_tuple
        start_profile_intrinsic_pure anylist_getitem lookup_param ptx_cvta
    """,
    _READ: "tvm_warp_activemask",
    _UPDATE: """
        call_packed tvm_call_packed tvm_call_cpacked call_cpacked tvm_call_packed_lowered
        tvm_call_cpacked_lowered tvm_struct_set
    """,
    _OPAQUE: """
        call_extern call_llvm_intrin ret fail assume tvm_storage_sync tvm_thread_allreduce
        tvm_throw_last_error tvm_warp_shuffle tvm_warp_shuffle_up tvm_warp_shuffle_down
        tvm_load_matrix_sync tvm_mma_sync tvm_bmma_sync tvm_fill_fragment tvm_store_matrix_sync
        tvm_stack_make_array tvm_stack_make_shape prefetch tvm_thread_invariant tvm_check_return
        tvm_global_barrier_kinit tvm_static_handle tvm_context_id coproc_sync coproc_dep_push
        coproc_dep_pop coproc_uop_push atomic_add ptx_mma ptx_ldmatrix ptx_cp_async ptx_cp_async_bulk
        ptx_commit_group ptx_wait_group mma_store mma_fill ptx_mma_sp ptx_wait_barrier
        ptx_init_barrier_thread_count ptx_arrive_barrier ptx_arrive_barrier_expect_tx create_barriers
        ptx_cp_async_barrier ptx_cp_async_bulk_tensor ptx_wgmma ptx_wgmma_wait ptx_turn_fragment
        ptx_wgmma_registers ptx_reduce_rows ptx_narrow_fragment ptx_set_registers tensor_map
        TVMBackendAllocWorkspace TVMBackendFreeWorkspace start_profile_intrinsic end_profile_intrinsic
        texture2d_load texture2d_store dma_copy dma_wait dma_start_group dma_end_group break_loop
        continue_loop
    """,
}

for _name in ELEMENTWISE:
    register_op(f"tir.{_name}", _PURE, vectorizable=True)
register_op("tir.vscale", _PURE, vectorizable=True)  # of no arguments: the same in each lane
for _effect, _names in _OTHERS.items():
    for _name in _names.split():
        register_op(f"tir.{_name}", _effect)
# Of words of 32 bits, element by element; its classic operands are vectors of four bytes.
Op.get("tir.dp4a").vectorizable = True
