"""The options of a PassContext: a registry of name, type, default and description.

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

    `idle` is the reason why the option has no effect here, or (a mapping) why some fields of a group have none.
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
    """Register the option `name` of PassContext(config={name: …}).

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
    """Warn about options that a program sets and that have no effect."""
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
_NO_DMA: Final = "no DMA engine reads through a cache"
_META: Final = "records are used where there are some, with or without it; `with database:` is enough"

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
        "limits for unrolling loops that are not marked, and whether marked ones are unrolled here",
    ),
    Option(
        "tir.LoopPartition",
        {
            "partition_const_loop": True,
            "no_unroll_loop_with_extent_one": False,
            "unroll_loop_with_partition_hint_no_interval": False,
        },
        None,
        "whether loops of constant extent are partitioned into a full body and a tail, as others are",
        {
            "no_unroll_loop_with_extent_one": "a part with one iteration is always replaced by its body",
            "unroll_loop_with_partition_hint_no_interval": "loops are partitioned without hints",
        },
    ),
    Option(
        "tir.HoistIfThenElse",
        {"support_block_scope_hosting": False},
        None,
        "whether conditions are hoisted out of loops over threads too",
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
        "expensive kinds of simplification: conditions and expressions with the known contents of buffers, "
        "conditions as conjunctions of disjunctions, operands that later operands imply",
        {"transitively_prove_inequalities": "inequalities are always proved from several others"},
    ),
    Option(
        "tir.RemoveNoOp",
        {"use_dataflow_analysis": False, "max_simplification_steps": 0},
        None,
        "the effort to find statements without effect",
        "tir.transform.RemoveNoOp has one strategy",
    ),
    Option(
        "tir.ReduceBranchingThroughOvercompute",
        {"use_dataflow_analysis": False},
        None,
        "whether values known at a branch are used to remove it",
        "there is no such pass; tir.transform.LoopPartition removes conditions from full tiles",
    ),
    # -- loop programs: which passes run, and on what
    Option(
        "tir.add_lower_pass", list, (), "passes to run in lowering: pairs of the phase (0 to 3) and the pass"
    ),
    Option("tir.disable_vectorize", bool, False, "run vectorized loops one element at a time"),
    Option("tir.disable_assert", bool, False, "remove the assertions of a program"),
    Option("tir.disable_storage_rewrite", bool, False, "do not share memory between allocations"),
    Option("tir.disable_cse_tir", bool, False, "do not eliminate common subexpressions"),
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
        "insert barriers between thread blocks where they are needed",
        "thread blocks cannot synchronize; stages that need it are separate kernels",
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
        "allocations with disjoint live ranges always share memory",
    ),
    Option(
        "tir.is_entry_func",
        bool,
        False,
        "the function is called from outside",
        "use the attribute tir.is_entry_func of a function",
    ),
    Option(
        "tir.ptx_ldg32",
        bool,
        False,
        "load through the read-only cache of the GPU",
        "the CUDA compiler does so if a kernel only reads a buffer",
    ),
    Option(
        "tir.enable_buffer_level_predication",
        bool,
        None,
        "conditions of vectorized loops are predicates of the form get_active_lane_mask (True) or loops (False); "
        "unset: what suits the target",
    ),
    Option(
        "tir.enable_debug",
        bool,
        False,
        "generate debug information",
        "debug information is not generated; TILEWRIGHT_DUMP=folder writes the program after each pass",
    ),
    Option(
        "tir.experimental_dma_bypass_cache",
        bool,
        False,
        "DMA copies bypass the cache",
        _NO_DMA,
    ),
    Option("tir.dma_bypass_cache", bool, False, "DMA copies bypass the cache", _NO_DMA),
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
    Option("tir.reset_start_id", bool, False, "restart the numbering of profiled loops", _NO_PROFILE),
    Option(
        "vta.debug_flag",
        int,
        0,
        "what building a program for the VTA chip prints: 2 its instructions, 4 its micro-ops, 6 both",
    ),
    # -- everything
    Option(
        "codegen.cache",
        bool,
        True,
        "machine code is cached on disk, if config.cache allows it",
    ),
    Option("testing.immutable_module", bool, False, "refuse passes that modify their input module"),
    Option(
        "te.keep_schedule_record",
        bool,
        False,
        "a te schedule records its primitives",
        "a te schedule has no record; a tir.Schedule has its trace",
    ),
    Option(
        "ir.enable_si_builder",
        bool,
        False,
        "give every node a source location",
        "statements from a script always have their source location",
    ),
    Option(
        "tilewright.auto_schedule",
        bool,
        False,
        "unscheduled functions are scheduled automatically",
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
        "the largest tile of Winograd convolutions: 0 disables them, 4 loses about one decimal digit",
    ),
    Option(
        "tilewright.fetch_ahead",
        bool,
        True,
        "kernels of models prefetch the weights of later kernels, if the caches cannot hold all weights",
    ),
    Option(
        "tilewright.data_check",
        str,
        None,
        "the handling of out-of-bounds indices and zero divisors in a model: check or clamp; default config.data_check",
    ),
    # -- graphs
    Option("relay.FuseOps.max_depth", int, 256, "the most operators that are fused into one function"),
    Option("relay.FuseOps.link_params", bool, False, "constant arrays are part of fused functions"),
    Option(
        "relay.ToMixedPrecision.keep_orig_output_dtype",
        bool,
        False,
        "ToMixedPrecision: the results keep their original types",
    ),
    Option(
        "relay.backend.tiers",
        bool,
        False,
        "relay.build for this machine's CPU returns before the kernels are compiled; NumPy answers until they are",
    ),
    Option(
        "relay.backend.use_auto_scheduler",
        bool,
        False,
        "auto_scheduler.is_auto_scheduler_enabled() says so; records of ApplyHistoryBest are used in any case",
    ),
    Option(
        "relay.backend.use_meta_schedule",
        bool,
        False,
        "meta_schedule.is_meta_schedule_enabled() says so; records of a Database are used in its block in any case",
    ),
    Option(
        "relay.backend.use_meta_schedule_dispatch",
        int,
        0,
        "flags for the choice between schedules of graph operators",
        _META,
    ),
    Option(
        "relay.backend.disable_compile_engine_cache",
        bool,
        False,
        "compile equal functions again",
        "equal functions of a model share a kernel; codegen.cache=False disables the cache on disk",
    ),
    Option(
        "relay.backend.tir_converter",
        str,
        "default",
        "the lowering of graph functions to loops",
        "there is only one lowering of graph functions",
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
        "importers record the source of each operator",
        "importers always record the node of the model that an operator came from",
    ),
    Option(
        "relay.fallback_device_type",
        int,
        1,
        "the device of operators without a placement",
        "a model runs on the device of its target",
    ),
)
OPTIONS: Final = tuple(o._replace(default=_default(o.type, o.default)) for o in _TABLE)
_options.update((o.name, o) for o in OPTIONS)
