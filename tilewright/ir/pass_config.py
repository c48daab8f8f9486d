"""The options that a PassContext takes, with their types and defaults."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from .errors import TVMError, near_matches
from .expr import IntImm, StringImm

__all__ = ["Option", "PassConfigError", "check_config", "config_options", "register_config_option"]


class PassConfigError(TVMError, ValueError):
    """An option of a PassContext that does not exist or has a value of the wrong type."""


class Option(NamedTuple):
    """One option: `type` is a Python type, or a mapping of fields to their defaults for a group."""

    name: str
    type: type | Mapping[str, Any]
    default: Any
    doc: str


_options: Final[dict[str, Option]] = {}


def register_config_option(
    name: str, type: type | Mapping[str, Any], default: Any = None, doc: str = ""
) -> None:
    """Make `name` known to PassContext(config={name: …}).

    A group of fields is given as a mapping of each field to its default:
    `register_config_option("tir.UnrollLoop", {"auto_max_step": 0, …})`.
    """
    if isinstance(type, Mapping) and default is None:
        default = dict(type)
    _options[name] = Option(name, type, default, doc)


def config_options() -> dict[str, Option]:
    """All options by name."""
    return dict(_options)


def _plain(value: Any) -> Any:
    """A Python value for a constant of the IR."""
    if isinstance(value, IntImm):
        return bool(value.value) if value.dtype.is_bool else value.value
    return value.value if isinstance(value, StringImm) else value


def _fits(value: Any, wanted: type) -> Any:
    """`value` as `wanted`, or TypeError."""
    value = _plain(value)
    if wanted is object or value is None:
        return value
    if wanted is bool and isinstance(value, int) and value in (0, 1):
        return bool(value)
    if wanted is int and isinstance(value, bool):
        return int(value)
    if wanted is list and isinstance(value, (list, tuple)):
        return list(value)
    if wanted is dict and isinstance(value, Mapping):
        return dict(value)
    if not isinstance(value, wanted):
        raise TypeError
    return value


def _check_one(option: Option, value: Any) -> Any:
    if isinstance(option.type, Mapping):
        if not isinstance(value, Mapping):
            raise PassConfigError(
                f"option {option.name!r} takes a dict of {', '.join(option.type)}, not {value!r}"
            )
        group: dict[str, Any] = dict(option.default)
        for field, given in value.items():
            if field not in option.type:
                raise PassConfigError(
                    f"option {option.name!r} has no field {field!r}{near_matches(str(field), option.type)}"
                )
            wanted = type(option.type[field])
            try:
                group[field] = _fits(given, wanted)
            except TypeError:
                raise PassConfigError(
                    f"field {field!r} of option {option.name!r} takes {wanted.__name__}, not {given!r}"
                ) from None
        return group
    try:
        return _fits(value, option.type)
    except TypeError:
        raise PassConfigError(
            f"option {option.name!r} takes {option.type.__name__}, not {value!r} ({type(value).__name__})"
        ) from None


def check_config(config: Mapping[str, Any] | None) -> dict[str, Any]:
    """The options as given, checked, groups filled up with their defaults."""
    if not isinstance(config, Mapping | None):
        raise PassConfigError(f"config is a dict of options, not {config!r}")
    checked: dict[str, Any] = {}
    for name, value in (config or {}).items():
        option = _options.get(name)
        if option is None:
            raise PassConfigError(f"unknown pass option {name!r}{near_matches(str(name), _options)}")
        checked[name] = _check_one(option, value)
    return checked


# -- options of the loop programs ---------------------------------------------------------------
_GROUPS: Final[dict[str, tuple[dict[str, Any], str]]] = {
    "tir.UnrollLoop": (
        {
            "auto_max_step": 0,
            "auto_max_depth": 8,
            "auto_max_extent": 0,
            "explicit_unroll": True,
            "unroll_local_access": False,
        },
        "when loops are unrolled that nobody marked, and whether marked ones are unrolled here",
    ),
    "tir.LoopPartition": (
        {
            "partition_const_loop": False,
            "no_unroll_loop_with_extent_one": False,
            "unroll_loop_with_partition_hint_no_interval": False,
        },
        "which loops are cut into a full body and a tail",
    ),
    "tir.HoistIfThenElse": (
        {"support_block_scope_hosting": False},
        "whether conditions leave the loops over threads too",
    ),
    "tir.HoistExpression": (
        {"hoisted_conditionals": 15, "hoisted_let_bindings": 15},
        "which conditions and bindings leave a loop, as sums of flags",
    ),
    "tir.Simplify": (
        {
            "transitively_prove_inequalities": False,
            "propagate_knowns_to_prove_conditional": False,
            "propagate_knowns_to_simplify_expressions": False,
            "convert_boolean_to_and_of_ors": False,
            "apply_constraints_to_boolean_branches": False,
        },
        "the costlier kinds of simplification",
    ),
    "tir.RemoveNoOp": (
        {"use_dataflow_analysis": False, "max_simplification_steps": 0},
        "how hard to look for statements without effect",
    ),
    "tir.ReduceBranchingThroughOvercompute": (
        {"use_dataflow_analysis": False},
        "whether values known at a branch are used to remove it",
    ),
    "tir.InjectDoubleBuffer": ({"split_loop": 1}, "by how much a double-buffered loop is unrolled"),
}

_SWITCHES: Final[dict[str, tuple[bool, str]]] = {
    "tir.disable_vectorize": (False, "run vectorized loops one element at a time"),
    "tir.disable_assert": (False, "leave out the assertions"),
    "tir.disable_storage_rewrite": (False, "give each allocation memory of its own"),
    "tir.disable_cse_tir": (False, "compute common subexpressions again each time"),
    "tir.enable_equiv_terms_in_cse_tir": (False, "find common subexpressions up to simplification"),
    "tir.noalias": (True, "buffers of a function do not overlap"),
    "tir.detect_global_barrier": (False, "put barriers between blocks of threads where they are needed"),
    "tir.instrument_bound_checkers": (False, "check each index while the program runs"),
    "tir.instrument_lwp": (False, "count processor cycles of loops"),
    "tir.lwp_disable_func_prof": (False, "count cycles of loops only"),
    "tir.debug_keep_trivial_loop": (False, "keep loops that run once"),
    "tir.use_async_copy": (False, "copy to shared memory asynchronously"),
    "tir.merge_static_smem": (False, "put all static shared memory into one allocation"),
    "tir.is_entry_func": (False, "the function is called from outside"),
    "tir.ptx_ldg32": (False, "load through the read-only cache of the GPU"),
    "tir.experimental_dma_bypass_cache": (False, "copies by the DMA engine go around the cache"),
    "tir.dma_bypass_cache": (False, "copies by the DMA engine go around the cache"),
    "tir.enable_debug": (False, "keep facts for a debugger"),
    "tir.enable_buffer_predication": (False, "mask the tails of vector loops"),
    "tir.reset_start_id": (False, "start the numbering of profiled loops anew"),
    "codegen.cache": (True, "machine code is kept on disk and taken from there, where config.cache lets it"),
    "te.keep_schedule_record": (False, "a te schedule keeps the history of its primitives"),
    "tilewright.tf32": (False, "tensor cores may round the factors of float32 products to 10 bits (tf32)"),
    "tilewright.fetch_ahead": (
        True,
        "kernels of models fetch the weights of those after them, if caches hold less",
    ),
    "tilewright.auto_schedule": (False, "functions that nobody has scheduled are scheduled automatically"),
    "ir.enable_si_builder": (False, "give every node a place in the source"),
    "testing.immutable_module": (False, "refuse passes that change their input"),
    "relay.backend.use_auto_scheduler": (False, "schedules come from auto_scheduler records"),
    "relay.backend.use_meta_schedule": (False, "schedules come from the tuning database"),
    "relay.backend.disable_compile_engine_cache": (False, "compile equal functions again"),
    "relay.FuseOps.link_params": (False, "constants become part of fused functions"),
    "relay.ToMixedPrecision.keep_orig_output_dtype": (False, "outputs keep their types"),
    "relay.remove_standalone_reshapes.enable": (True, "reshapes become views"),
    "relay.frontend.fill_span": (False, "importers note where each operator came from"),
}

_NUMBERS: Final[dict[str, tuple[int | None, str]]] = {
    "tir.vtcm_capacity": (0, "bytes of tightly coupled memory that may be used"),
    "tir.lwp_max_depth": (0, "how deep loops are profiled"),
    "tir.lwp_min_height": (1, "how far above the innermost loop profiling stops"),
    "tilewright.winograd": (
        2,
        "tiles of up to so many results by which convolutions take fewer products: 0 for none, 4 costs a digit",
    ),
    "relay.FuseOps.max_depth": (256, "the most operators that are fused into one function"),
    "relay.fallback_device_type": (1, "the device of what nobody placed"),
    "relay.backend.use_meta_schedule_dispatch": (0, "how graphs choose between schedules, as flags"),
}


def _register_known() -> None:
    for name, (fields, doc) in _GROUPS.items():
        register_config_option(name, fields, None, doc)
    for name, (on, doc) in _SWITCHES.items():
        register_config_option(name, bool, on, doc)
    for name, (number, doc) in _NUMBERS.items():
        register_config_option(name, int, number, doc)
    register_config_option(
        "tir.add_lower_pass", list, (), "passes to run in lowering: pairs of the phase (0 to 3) and the pass"
    )
    register_config_option(
        "tilewright.data_check",
        str,
        None,
        "what a model does with indices outside and zero divisors: check or clamp; without it, config.data_check",
    )
    register_config_option("relay.backend.tir_converter", str, "default", "how graph functions become loops")


_register_known()
