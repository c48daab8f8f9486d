"""The steps and annotations that a trace from a file may use: those that the search writes, and no others.

A record of somebody else may change the speed of a program and nothing else. Every primitive below checks that it
keeps the answer. Others do not (`unsafe_set_dtype`, `split(disable_predication=True)`), and annotations such as
`pragma_import_llvm` carry code, so a trace that has one is refused unless its reader says that he trusts the file.

A rule that uses another primitive, argument or annotation adds it here: `tests/tune/test_records_trusted.py` runs
searches and compares what they write with this table.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ...ir.errors import ScheduleError
from ...ir.function import PrimFunc
from ...ir.module import IRModule


class UntrustedStep(ScheduleError):
    """A trace from a file has a step that no search writes."""


# The primitives by name, with the arguments that may be given by name.
STEPS: Final[Mapping[str, frozenset[str]]] = {
    name: frozenset(arguments.split())
    for name, arguments in {
        "add_unit_loop": "block_or_loop",
        "annotate": "block_or_loop ann_key ann_val",
        "bind": "loop thread_axis",
        "blockize": "target preserve_unit_iters",
        "cache_read": "block read_buffer_index storage_scope consumer_blocks",
        "cache_write": "block write_buffer_index storage_scope consumer_blocks",
        "compute_at": "block loop preserve_unit_loops index",
        "compute_inline": "block",
        "decompose_padding": "block loop",
        "cascade_reduction": "loop",
        "decompose_reduction": "block loop",
        "fuse": "preserve_unit_iters name",
        "get_block": "name func_name",
        "get_child_blocks": "block_or_loop",
        "get_consumers": "block",
        "get_loops": "block",
        "get_producers": "block",
        "launch_around": "loop thread_axis extent",
        "pack_bits": "block loop",
        "pack_dot_bits": "block loop",
        "pack_words": "block loop first_type second_type",
        "pad_einsum": "block padding",
        "parallel": "loop",
        "rebase": "block partial",
        "reindex": "block buffer",
        "reindex_cache_read": "block read_buffer_index storage_scope index_map",
        "reindex_cache_write": "block write_buffer_index storage_scope index_map",
        "reorder": "",
        "reverse_compute_at": "block loop preserve_unit_loops index",
        "rfactor": "loop factor_axis",
        "set_scope": "block buffer_index storage_scope",
        "split_scales": "block loop size integers",
        "split": "loop factors preserve_unit_iters names",
        "storage_align": "block buffer_index axis factor offset",
        "stream": "block rows columns together lanes",
        "split_attention": "block size chunk",
        "tensorize": "block_or_loop tensor_intrin preserve_unit_iters",
        "transform_block_layout": "block index_map",
        "transform_layout": "block buffer index_map pad_value assume_injective_transform",  # which is proved
        "unroll": "loop",
        "vectorize": "loop",
        "winograd": "block tile_size",
        "work_on": "func_name",
    }.items()
}
# The annotations, with what their values may be: a number from 0, or a list of them, or one of some words.
_NUMBER, _NUMBERS = "a whole number from 0 to 2^31 - 1", "a list of at most 64 whole numbers from 0"
ANNOTATIONS: Final[Mapping[str, tuple[str, ...]]] = {
    "permuted_layout": (_NUMBER,),
    "pragma_auto_unroll_max_step": (_NUMBER,),
    "pragma_buffer_versions": (_NUMBER,),
    "pragma_dma_copy": (_NUMBER,),
    "pragma_fetch_early": (_NUMBER,),
    "pragma_min_blocks": (_NUMBER,),
    "pragma_nontemporal": (_NUMBER,),
    "pragma_unroll_explicit": (_NUMBER,),
    "pragma_vector_unit": (_NUMBER,),
    "reduce_lanes": (_NUMBER,),
    "scan_threads": (_NUMBERS,),
    "software_pipeline_async_stages": (_NUMBERS,),
    "software_pipeline_by_registers": (_NUMBERS,),
    "software_pipeline_guarded": (_NUMBER,),
    "software_pipeline_order": (_NUMBERS,),
    "software_pipeline_stage": (_NUMBERS,),
    "tilewright.back_and_forth": (_NUMBER,),
    "tilewright.bulk_copy": (_NUMBER, "tf32", "threads"),
    "tilewright.early_versions": (_NUMBER,),
    "tilewright.overlap_products": (_NUMBER,),
    "tilewright.persistent_blocks": (_NUMBER,),
    "tilewright.specialize_warps": (_NUMBER,),
    "tilewright.view": (_NUMBERS,),
    "transpose_ahead": (_NUMBER,),
    "transpose_lanes": (_NUMBER,),
}
_TF32: Final = "tf32"  # in the names of intrinsics that round, and what bulk copies do
_PREFETCH: Final = "prefetch_past_"  # and the name of a buffer


def untrusted(step: Any) -> str:
    """Why a step, as it stands in a file, is none that a search writes; empty if it may be one."""
    kind = step.get("step") if isinstance(step, Mapping) else None
    if not isinstance(kind, str) or kind not in STEPS:
        return f"`{kind}` is not a step of the search"
    given = step.get("kwargs", {})
    if not isinstance(given, Mapping) or not isinstance(step.get("args", []), list):
        return f"the arguments of `{kind}` are damaged"
    for name in given:
        if name not in STEPS[kind]:
            return f"`{kind}` with the argument `{name}` is not a step of the search"
    if "decision" in step:
        return f"`{kind}` draws nothing, and has a decision"
    if kind != "annotate":
        return ""
    if step.get("args") or set(given) != STEPS[kind]:
        return "the arguments of `annotate` are damaged"
    return _unknown_annotation(given["ann_key"], given["ann_val"])


def _unknown_annotation(key: Any, value: Any) -> str:
    if not isinstance(key, str):
        return "the key of an annotation is text"
    wanted = (_NUMBER,) if key.startswith(_PREFETCH) else ANNOTATIONS.get(key)
    if wanted is None:
        return f"`annotate` with {key!r} is not a step of the search"
    fits = {_NUMBER: _is_number(value), _NUMBERS: _are_numbers(value)}
    if not any(fits.get(w, value == w) for w in wanted):
        return f"`annotate` with {key!r} takes {' or '.join(wanted)}"
    return ""


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 31


def _are_numbers(value: Any) -> bool:
    return isinstance(value, list) and len(value) <= 64 and all(map(_is_number, value))


def check_steps(steps: Any, trusting: str) -> None:
    """Refuse a trace from a file that does what no search does; `trusting` says how to allow it."""
    for number, step in enumerate(steps if isinstance(steps, list) else []):
        why = untrusted(step)
        if why:
            raise UntrustedStep(
                f"step {number} of the trace is refused: {why}, and could do more than change the speed; "
                f"if you made the file yourself, or trust whoever did, {trusting}"
            )


def check_rounding(steps: Any) -> None:
    """Refuse a trace that rounds the factors of float32 products (tf32), for a target that does not allow it."""
    for number, step in enumerate(steps if isinstance(steps, list) else []):
        given = step.get("kwargs") if isinstance(step, Mapping) else None
        given = given if isinstance(given, Mapping) else {}
        if _TF32 in str(given.get("tensor_intrin", "")) or given.get("ann_val") == _TF32:
            raise ScheduleError(
                f"step {number} of the trace rounds float32 to {_TF32}, which changes the result, and the target "
                "does not allow it; a target with -tf32=1 does"
            )


def interface(mod: IRModule) -> dict[str, list[str]]:
    """The interface of a module's functions: parameters, with types and layouts."""
    return {
        gv.name_hint: [
            f"{v.name} {v.dtype}"
            if v not in f.buffer_map
            else " ".join(str(getattr(f.buffer_map[v], name)) for name in _LAYOUT)
            for v in f.params
        ]
        for gv, f in mod.functions.items()
        if isinstance(f, PrimFunc)
    }


_LAYOUT: Final = (
    "name", "scope_name", "dtype", "shape", "strides", "elem_offset", "axis_separators",
    "data_alignment", "offset_factor",
)  # fmt: skip
