"""The names of the classic API that this package has: a missing one makes a whole program fail."""

from __future__ import annotations

import importlib
from typing import Any

import pytest

import tilewright as tvm
from tilewright import te, tir
from tilewright.absent import Absent
from tilewright.ir.errors import UnsupportedError
from tilewright.script import ir as I
from tilewright.script import tir as T

ROOTS: dict[str, Any] = {"tvm": tvm, "te": te, "tir": tir, "T": T, "I": I}
NAMES = {
    "tvm": """
        arith.Extension ir.BaseExpr ir.IncompleteType ir.RelayExpr ir.TensorType ir.TypeKind.Type ir.TypeVar
        ir.diagnostics.override_renderer parser.parse runtime.const script.ir_builder.IRBuilder
        script.ir_builder.ir.ir_module script.ir_builder.tir.prim_func script.ir_builder.tir.vscale
        script.parser.ir.ir_module script.parser.parse script.parser.tir.prim_func tir.buffer.decl_buffer
        tir.expr.EqualOp tir.function.PrimFunc tir.function.TensorIntrin tir.op.exp tir.stmt.For
        DataType IRModule IRModule.from_expr TVMError __version__ _ffi.base.TVMError
        _ffi.runtime_ctypes.Device.STR2MASK arith.Analyzer arith.ConstIntBound arith.IntSet.vector
        arith.IntervalSet arith.IterMark arith.IterSplitExpr arith.IterSumExpr arith.ModularSet
        arith.analyzer.Analyzer arith.deduce_bound arith.detect_clip_bound arith.detect_iter_map
        arith.detect_linear_equation arith.int_set.pos_inf arith.int_set.union_lower_bound
        arith.inverse_affine_iter_map arith.normalize_iter_map_to_expr arith.solve_linear_equations
        arith.subspace_divide build contrib.cc.create_shared contrib.clang.create_llvm
        contrib.cudnn.exists contrib.download.download_testdata contrib.nvcc.have_fp16
        contrib.nvcc.have_int8 contrib.utils.tempdir cpu cuda device driver.build
        driver.build_module.schedule_to_module error.DiagnosticError error.InternalError error.TVMError
        get_global_func instrument.PassTimingInstrument instrument.PrintAfterAll
        instrument.PrintBeforeAll instrument.pass_instrument ir.FuncType ir.GlobalVar ir.IRModule
        ir.IRModule.from_expr ir.Op ir.Op.get ir.PointerType ir.PrimType ir.Range
        ir.Range.from_min_extent ir.TupleType ir.assert_structural_equal
        ir.instrument.PassTimingInstrument ir.instrument.pass_instrument ir.module.IRModule
        ir.module.IRModule.from_expr ir.structural_equal ir.structural_hash ir.transform.PassContext
        ir.transform.Sequential lower metal nd.NDArray nd.array nd.empty nd.from_dlpack opencl
        register_func rocm runtime.Device runtime.Module runtime.NDArray runtime.PackedFunc
        runtime.ShapeTuple runtime.String runtime.TVMError runtime.container.ShapeTuple
        runtime.container.String runtime.convert runtime.enabled runtime.load_module
        runtime.module.BenchmarkResult runtime.module.Module runtime.ndarray.array runtime.num_threads
        runtime.save_param_dict script.from_source script.ir_module target.Target
        target.Target.canon_multi_target_and_host target.Target.canon_target_and_host
        target.Target.current target.Target.from_device target.Target.list_kinds target.VirtualDevice
        target.arm_cpu target.codegen.llvm_version_major target.create target.cuda testing
        testing.assert_allclose testing.device_enabled testing.enabled_targets testing.main
        testing.parameter testing.parameters testing.requires_llvm transform.Pass transform.PassContext
        transform.PassContext.current transform.PrintIR transform.Sequential transform.module_pass
        vulkan
    """,
    "te": """
        AXIS_SEPARATOR PlaceholderOp ScanOp Schedule Tensor abs all any ceil comm_reducer compute const
        create_prim_func create_schedule decl_tensor_intrin div erf exp extern extern_primfunc floor
        floordiv floormod if_then_else log max max_value min min_value placeholder power prod reduce_axis
        round scan
        schedule.InferBound schedule.IterVar.Tensorized schedule.IterVar.Unrolled
        schedule.IterVar.Vectorized schedule.Schedule schedule.ScheduleOps
        schedule.SchedulePostProcToPrimFunc schedule.create_schedule sigmoid size_var sqrt sum tag_scope
        tanh tensor tensor.Tensor thread_axis trunc truncdiv truncmod var
    """,
    "tir": """
        Add Allocate And Any AttrStmt Block BlockRealize Broadcast BufferLoad BufferRegion BufferStore
        Call Cast Div EQ Evaluate FloatImm For ForKind.SERIAL ForKind.VECTORIZED GE GT IfThenElse IntImm
        IterVar LE LT Let LetStmt Max Min Mod NE Not Or Prefetch PrimExpr PrimFunc Ramp Schedule
        ScheduleError Select SeqStmt SizeVar StringImm Var While abs all analysis.OOBChecker
        analysis.detect_buffer_access_lca analysis.estimate_tir_flops analysis.expr_deep_equal
        analysis.find_anchor_block analysis.get_block_access_region analysis.get_block_read_write_region
        analysis.verify_ssa analysis.verify_well_formed any call_extern call_intrin call_packed const
        decl_buffer exp floordiv floormod if_then_else indexdiv indexmod interpret ir_builder.create log
        max min power sigmoid sqrt stmt_functor.ir_transform stmt_functor.post_order_visit
        stmt_functor.renew_defs stmt_functor.substitute tanh transform.Apply
        transform.CommonSubexprElimTIR transform.CompactBufferAllocation transform.ConvertBlocksToOpaque
        transform.ConvertForLoopsToSerial transform.ConvertSSA transform.FlattenBuffer
        transform.ForceNarrowIndexToInt32 transform.HoistExpression transform.HoistIfThenElse
        transform.InjectDoubleBuffer transform.InjectVirtualThread transform.LiftAttrScope
        transform.LoopPartition transform.LowerInitBlock transform.LowerIntrin
        transform.LowerMatchBuffer transform.LowerOpaqueBlock transform.NarrowDataType
        transform.PlanAndUpdateBufferAllocationLocation transform.PrimFuncPass transform.RemoveNoOp
        transform.RewriteUnsafeSelect transform.Simplify transform.StorageFlatten
        transform.StorageRewrite transform.ThreadSync transform.UnrollLoop transform.VectorizeLoop
        transform.prim_func_pass truncdiv truncmod
    """,
    "T": """
        Broadcast Buffer Call Cast Div Let LetStmt Mul Ramp Range Select Shuffle address_of alloc_buffer
        allocate allocate_const assume attr axis.R axis.S axis.opaque axis.reduce axis.remap
        axis.spatial bitwise_and bitwise_or block block_attr bool broadcast call_extern
        call_llvm_pure_intrin cast ceil ceildiv clz comm_reducer decl_buffer env_thread erf evaluate exp
        float16 float32 float64 floor floordiv floormod func_attr get_active_lane_mask grid handle
        if_then_else init int16 int32 int64 int8 isnullptr iter_var launch_thread likely log2 macro
        match_buffer max max_value meta_var min min_value parallel prim_func q_multiply_shift
        q_multiply_shift_per_axis ramp reads realize reinterpret ret round rsqrt serial shift_left
        shift_right sqrt target thread_binding truncdiv truncmod tvm_access_ptr tvm_call_packed_lowered
        tvm_fill_fragment tvm_load_matrix_sync tvm_mma_sync tvm_stack_alloca tvm_stack_make_array
        tvm_stack_make_shape tvm_store_matrix_sync tvm_struct_get tvm_struct_set tvm_thread_allreduce
        tvm_throw_last_error tvm_tuple tvm_warp_activemask tvm_warp_shuffle tvm_warp_shuffle_down
        type_annotation uint16 uint32 uint64 uint8 unroll vectorized vscale where writes
    """,
    "I": """
        ir_module
    """,
}

# What is known by name and raises UnsupportedError when it is called.
ABSENT = {
    "te": "hybrid.build",
}

# Methods of schedules and stages. Those that the package itself lists as coming later say so when called.
STAGE = """
    all_iter_vars attach_type bind compute_at compute_inline compute_root fuse group iter_var_attrs
    leaf_iter_vars op parallel pragma relations reorder rolling_buffer set_scope set_store_predicate split
    storage_align tensorize tile transform_layout unroll vectorize
"""
TE_SCHEDULE = "cache_read cache_write create_group groups normalize outputs rfactor stages"
TIR_SCHEDULE = """
    add_unit_loop annotate bind blockize cache_inplace cache_read cache_write can_decompose_padding
    compute_at compute_inline copy decompose_padding decompose_reduction func_working_on fuse get get_block
    get_child_blocks get_consumers get_loops get_producers get_sref loop_partition merge merge_reduction mod
    pad_einsum parallel read_at reindex reindex_cache_read reindex_cache_write remove_rv reorder
    reorder_block_iter_var reverse_compute_at reverse_compute_inline rfactor rolling_buffer
    sample_perfect_tile set_axis_separator set_scope show split state storage_align tensorize trace
    transform_block_layout transform_layout unannotate unroll unsafe_set_dtype vectorize work_on write_at
"""


def find(root: str, path: str) -> Any:
    """What `root.path` is for a program that imported the modules on the way."""
    thing = ROOTS[root]
    for part in path.split("."):
        if hasattr(thing, part):
            thing = getattr(thing, part)
        else:
            thing = importlib.import_module(f"{thing.__name__}.{part}")
    return thing


@pytest.mark.parametrize("root", list(NAMES))
def test_names_are_there(root: str) -> None:
    missing = []
    for path in NAMES[root].split():
        try:
            thing = find(root, path)
        except (AttributeError, ImportError):
            missing.append(f"{root}.{path}")
            continue
        assert not isinstance(thing, Absent), f"{root}.{path} is a placeholder"
    assert not missing, f"missing: {' '.join(missing)}"


@pytest.mark.parametrize(
    "name", [f"{root}.{path}" for root, paths in ABSENT.items() for path in paths.split()]
)
def test_absent_names_say_so(name: str) -> None:
    root, _, path = name.partition(".")
    with pytest.raises(UnsupportedError, match="is not part of tilewright"):
        find(root, path)(None)


@pytest.fixture
def tensor() -> te.Tensor:
    A = te.placeholder((8, 8), name="A")
    return te.compute((8, 8), lambda i, j: A[i, j] + 1.0, name="B")


def check(thing: Any, names: str) -> None:
    missing = [name for name in names.split() if not hasattr(thing, name)]
    assert not missing, f"missing: {' '.join(missing)}"
    with pytest.raises(AttributeError):
        thing.non_existent_field  # noqa: B018


def test_stage(tensor: te.Tensor) -> None:
    check(te.create_schedule(tensor.op)[tensor], STAGE)


def test_te_schedule(tensor: te.Tensor) -> None:
    check(te.create_schedule(tensor.op), TE_SCHEDULE)


def test_tir_schedule(tensor: te.Tensor) -> None:
    check(tir.Schedule(te.create_prim_func([*tensor.op.input_tensors, tensor])), TIR_SCHEDULE)


def test_one_base_error_under_its_three_names() -> None:
    from tilewright._ffi.base import TVMError

    assert tvm.TVMError is tvm.error.TVMError is TVMError is tvm.runtime.TVMError
    assert issubclass(tir.ScheduleError, TVMError)


def test_what_programs_import_at_their_top() -> None:
    lines = """
        import tilewright as tvm
        import tilewright.testing
        from tilewright import te, tir, relay, topi, autotvm, auto_scheduler, rpc, ir, runtime, IRModule
        from tilewright.arith import ConstIntBound
        from tilewright.contrib import cc, clang, cudnn, download, graph_executor, nvcc, popen_pool, utils
        from tilewright.contrib.nvcc import have_fp16
        from tilewright.driver.build_module import schedule_to_module
        from tilewright.error import TVMError
        from tilewright.ir.module import IRModule
        from tilewright.script import from_source, ir as I, tir as T
        from tilewright.target import Target, arm_cpu, bifrost, cuda, intel_graphics, mali, rocm, vta
        from tilewright.target.codegen import llvm_get_intrinsic_name, llvm_lookup_intrinsic_id
        from tilewright.target.target import Target
        from tilewright.tir import Buffer, floordiv, floormod, truncdiv, truncmod
        from tilewright.tir.schedule.testing import assert_structural_equal_ignore_global_symbol
        from tilewright.tir.schedule.testing import verify_trace_roundtrip
    """
    for line in lines.strip().splitlines():
        exec(line.strip(), {})


def test_schedules_can_be_replayed_from_their_trace(tensor: te.Tensor) -> None:
    from tilewright.tir.schedule.testing import (
        assert_structural_equal_ignore_global_symbol,
        verify_trace_roundtrip,
    )

    func = te.create_prim_func([*tensor.op.input_tensors, tensor])
    sch = tir.Schedule(func)
    i, j = sch.get_loops("B")
    outer, inner = sch.split(i, [None, 3])
    sch.reorder(outer, j, inner)
    sch.parallel(outer)
    again = verify_trace_roundtrip(sch, func)
    assert_structural_equal_ignore_global_symbol(
        again.mod["main"], sch.mod["main"].with_attr("global_symbol", "x")
    )
    with pytest.raises(ValueError, match="StructuralEqual"):
        assert_structural_equal_ignore_global_symbol(func, sch.mod["main"])
    with pytest.raises(ValueError, match="python and json, not 'xml'"):
        verify_trace_roundtrip(sch, func, text_format="xml")


def test_names_of_older_programs_are_told_their_home() -> None:
    with pytest.raises(
        AttributeError, match=r"no attribute 'placeholder'; it is te\.placeholder, as in TVM since"
    ):
        _ = tvm.placeholder
    with pytest.raises(AttributeError, match=r"no attribute 'decl_buffer'; it is tir\.decl_buffer"):
        _ = tvm.decl_buffer
    with pytest.raises(AttributeError, match=r"no attribute 'nonsense'$"):
        _ = tvm.nonsense


def test_an_unknown_size_is_known_by_its_class() -> None:
    assert tir.expr.Any is tir.Any and tir.expr.IntImm is tir.IntImm
    assert isinstance(tvm.relay.Any(), (tir.Var, tvm.tir.expr.Any)) and not isinstance(1, tir.expr.Any)


def test_an_installation_describes_itself(capsys: pytest.CaptureFixture[str]) -> None:
    import numpy

    tvm.support.describe()
    told = capsys.readouterr().out
    assert f"numpy {numpy.__version__}" in told and "threads " in told
    info = tvm.support.libinfo()
    assert info["USE_LLVM"] == info["USE_PROFILER"] == "ON" and "GIT_COMMIT_HASH" in info
    assert info["NUMPY"] == numpy.__version__ and info["USE_OPENCL"] in ("ON", "OFF")
