"""The options that a PassContext takes: one registry of name, type, default, and what each does.

An option of the classic API that has no meaning here is accepted, so that programs run, and warns once that it does
nothing and why. `OPTIONS` at the end is the table; errors, `PassContext.list_configs()` and docs/lowering.md come from
it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from .errors import TVMError, near_matches
from .expr import IntImm, StringImm
from .say_once import say_once


class PassConfigError(TVMError, ValueError):
    """An option of a PassContext that does not exist or has a value of the wrong type."""


class Option(NamedTuple):
    """One option: `type` is a Python type, or a mapping of fields to their defaults for a group.

    `idle` says why the option does nothing here, or (a mapping) why some fields of a group do nothing.
    """

    name: str
    type: type | Mapping[str, Any]
    default: Any
    doc: str
    idle: str | Mapping[str, str] = ""


_options: Final[dict[str, Option]] = {}


def register_config_option(
    name: str, type: type | Mapping[str, Any], default: Any = None, doc: str = ""
) -> None:
    """Make `name` known to PassContext(config={name: …}).

    A group of fields is given as a mapping of each field to its default:
    `register_config_option("tir.UnrollLoop", {"auto_max_step": 0, …})`.
    """
    _options[name] = Option(name, type, _default(type, default), doc)


def _default(type: type | Mapping[str, Any], default: Any) -> Any:
    return dict(type) if isinstance(type, Mapping) and default is None else default


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
        if option.idle:
            _warn(option, checked[name])
    return checked


def _warn(option: Option, value: Any) -> None:
    """Say of what a program sets, and does nothing, that it does nothing."""
    if isinstance(option.idle, str):
        if value != option.default:
            say_once(f"pass option {option.name!r} does nothing here: {option.idle}")
        return
    for field, why in option.idle.items():
        if value[field] != option.default[field]:
            say_once(f"field {field!r} of pass option {option.name!r} does nothing here: {why}")


# ---------------------------------------------------------------------------- the options
_NO_PROFILE: Final = (
    "loops are not profiled one by one; use module.time_evaluator or contrib.debugger.debug_executor"
)
_NO_DMA: Final = "no target has a DMA engine"
_META: Final = (
    "there is no meta_schedule; use auto_scheduler.ApplyHistoryBest, or tilewright.tune.records.History"
)

_TABLE: Final[tuple[Option, ...]] = (
    # -- loop programs: what passes do
    Option(
        "tir.UnrollLoop",
        {
            "auto_max_step": 0,
            "auto_max_depth": 8,
            "auto_max_extent": 0,
            "explicit_unroll": True,
            "unroll_local_access": False,
        },
        None,
        "when loops are unrolled that nobody marked, and whether marked ones are unrolled here",
    ),
    Option(
        "tir.LoopPartition",
        {
            "partition_const_loop": True,
            "no_unroll_loop_with_extent_one": False,
            "unroll_loop_with_partition_hint_no_interval": False,
        },
        None,
        "whether loops of constant extent are cut into a full body and a tail, as others are",
        {
            "no_unroll_loop_with_extent_one": "a part that runs once is its body",
            "unroll_loop_with_partition_hint_no_interval": "loops are partitioned without hints",
        },
    ),
    Option(
        "tir.HoistIfThenElse",
        {"support_block_scope_hosting": False},
        None,
        "whether conditions leave the loops over threads too",
    ),
    Option(
        "tir.HoistExpression",
        {"hoisted_conditionals": 7, "hoisted_let_bindings": 6},
        None,
        "what tir.transform.HoistExpression moves out of loops, as sums of the flags HoistedConditionals and "
        "HoistedLetBindings of tir.transform",
    ),
    Option(
        "tir.InjectDoubleBuffer",
        {"split_loop": 1},
        None,
        "by how much a double-buffered loop of constant extent is unrolled",
    ),
    Option(
        "tir.Simplify",
        {
            "transitively_prove_inequalities": False,
            "propagate_knowns_to_prove_conditional": False,
            "propagate_knowns_to_simplify_expressions": False,
            "convert_boolean_to_and_of_ors": False,
            "apply_constraints_to_boolean_branches": False,
        },
        None,
        "the costlier kinds of simplification",
        "tir.transform.Simplify always uses the loops and conditions around an expression, and has no costlier kinds",
    ),
    Option(
        "tir.RemoveNoOp",
        {"use_dataflow_analysis": False, "max_simplification_steps": 0},
        None,
        "how hard to look for statements without effect",
        "tir.transform.RemoveNoOp has one way to look",
    ),
    Option(
        "tir.ReduceBranchingThroughOvercompute",
        {"use_dataflow_analysis": False},
        None,
        "whether values known at a branch are used to remove it",
        "there is no such pass; tir.transform.LoopPartition takes conditions out of full tiles",
    ),
    # -- loop programs: which passes run, and on what
    Option(
        "tir.add_lower_pass", list, (), "passes to run in lowering: pairs of the phase (0 to 3) and the pass"
    ),
    Option("tir.disable_vectorize", bool, False, "run vectorized loops one element at a time"),
    Option("tir.disable_assert", bool, False, "leave out the assertions of a program"),
    Option("tir.disable_storage_rewrite", bool, False, "give each allocation memory of its own"),
    Option("tir.disable_cse_tir", bool, False, "compute common subexpressions again each time"),
    Option(
        "tir.enable_equiv_terms_in_cse_tir",
        bool,
        False,
        "find common subexpressions up to the order of operands",
    ),
    Option("tir.noalias", bool, True, "the buffers of a function do not overlap"),
    Option("tir.debug_keep_trivial_loop", bool, False, "keep loops that run once"),
    Option(
        "tir.instrument_bound_checkers", bool, False, "check each index of a buffer while the program runs"
    ),
    Option(
        "tir.detect_global_barrier",
        bool,
        False,
        "put barriers between blocks of threads where they are needed",
        "blocks of threads do not wait for each other; stages that have to are kernels of their own",
    ),
    Option(
        "tir.use_async_copy",
        bool,
        False,
        "copy to shared memory asynchronously",
        "copies that a schedule marks as asynchronous always are",
    ),
    Option(
        "tir.merge_static_smem",
        bool,
        False,
        "put all static shared memory into one allocation",
        "allocations whose lives do not meet share memory in any case",
    ),
    Option(
        "tir.is_entry_func",
        bool,
        False,
        "the function is called from outside",
        "the attribute tir.is_entry_func of a function says it",
    ),
    Option(
        "tir.ptx_ldg32",
        bool,
        False,
        "load through the read-only cache of the GPU",
        "the compiler of CUDA does so where a kernel only reads a buffer",
    ),
    Option(
        "tir.enable_buffer_predication",
        bool,
        False,
        "mask the tails of vector loops",
        "tails of vector loops are masked in any case",
    ),
    Option(
        "tir.enable_debug",
        bool,
        False,
        "keep facts for a debugger",
        "no facts for a debugger are written; TILEWRIGHT_DUMP=folder writes the program after each pass",
    ),
    Option(
        "tir.experimental_dma_bypass_cache",
        bool,
        False,
        "copies by the DMA engine go around the cache",
        _NO_DMA,
    ),
    Option("tir.dma_bypass_cache", bool, False, "copies by the DMA engine go around the cache", _NO_DMA),
    Option(
        "tir.vtcm_capacity",
        int,
        0,
        "bytes of tightly coupled memory that may be used",
        "no target has tightly coupled memory",
    ),
    Option("tir.instrument_lwp", bool, False, "count processor cycles of loops", _NO_PROFILE),
    Option("tir.lwp_disable_func_prof", bool, False, "count cycles of loops only", _NO_PROFILE),
    Option("tir.lwp_max_depth", int, 0, "how deep loops are profiled", _NO_PROFILE),
    Option("tir.lwp_min_height", int, 1, "how far above the innermost loop profiling stops", _NO_PROFILE),
    Option("tir.reset_start_id", bool, False, "start the numbering of profiled loops anew", _NO_PROFILE),
    # -- everything
    Option(
        "codegen.cache",
        bool,
        True,
        "machine code is kept on disk and taken from there, where config.cache lets it",
    ),
    Option(
        "testing.immutable_module", bool, False, "refuse passes that change the module that they are given"
    ),
    Option(
        "te.keep_schedule_record",
        bool,
        False,
        "a te schedule keeps the history of its primitives",
        "a te schedule keeps none; a tir.Schedule has its trace",
    ),
    Option(
        "ir.enable_si_builder",
        bool,
        False,
        "give every node a place in the source",
        "statements that come from a script have their place in any case",
    ),
    Option(
        "tilewright.auto_schedule",
        bool,
        False,
        "functions that nobody has scheduled are scheduled automatically",
    ),
    Option(
        "tilewright.tf32",
        bool,
        False,
        "tensor cores may round the factors of float32 products to 10 bits (tf32)",
    ),
    Option(
        "tilewright.winograd",
        int,
        2,
        "tiles of up to so many results by which convolutions take fewer products: 0 for none, 4 costs a digit",
    ),
    Option(
        "tilewright.fetch_ahead",
        bool,
        True,
        "kernels of models fetch the weights of those after them, if caches hold less",
    ),
    Option(
        "tilewright.data_check",
        str,
        None,
        "what a model does with indices outside and zero divisors: check or clamp; without it, config.data_check",
    ),
    # -- graphs
    Option("relay.FuseOps.max_depth", int, 256, "the most operators that are fused into one function"),
    Option(
        "relay.ToMixedPrecision.keep_orig_output_dtype",
        bool,
        False,
        "ToMixedPrecision: the results have the types that they had before",
    ),
    Option(
        "relay.backend.use_auto_scheduler",
        bool,
        False,
        "auto_scheduler.is_auto_scheduler_enabled() says so; records of ApplyHistoryBest are used in any case",
    ),
    Option("relay.backend.use_meta_schedule", bool, False, "schedules come from the tuning database", _META),
    Option(
        "relay.backend.use_meta_schedule_dispatch",
        int,
        0,
        "how graphs choose between schedules, as flags",
        _META,
    ),
    Option(
        "relay.backend.disable_compile_engine_cache",
        bool,
        False,
        "compile equal functions again",
        "equal functions of a model are one kernel; codegen.cache=False leaves out the cache on disk",
    ),
    Option(
        "relay.backend.tir_converter",
        str,
        "default",
        "how graph functions become loops",
        "graph functions become loops in one way",
    ),
    Option(
        "relay.FuseOps.link_params",
        bool,
        False,
        "constants become part of fused functions",
        "relay.build binds the parameters that it is given as constants, and an exported library holds them",
    ),
    Option(
        "relay.remove_standalone_reshapes.enable",
        bool,
        True,
        "reshapes become views",
        "a reshape is always a view of the same memory",
    ),
    Option(
        "relay.frontend.fill_span",
        bool,
        False,
        "importers note where each operator came from",
        "importers always note the node of the model that an operator came from",
    ),
    Option(
        "relay.fallback_device_type",
        int,
        1,
        "the device of what nobody placed",
        "a model runs on the device of its target",
    ),
)
OPTIONS: Final = tuple(o._replace(default=_default(o.type, o.default)) for o in _TABLE)
_options.update((o.name, o) for o in OPTIONS)
