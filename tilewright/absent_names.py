"""The table of names of the classic API that tilewright does not have. `absent.py` says how it is used.

A row is the modules or the class in which the names stand, the names, why they are absent, and what to use instead. A
name that ends with `.*` is a module that is absent with all that is below it, or all that a module does not have.
"""

from __future__ import annotations

from typing import Final

_ELSEWHERE = "parts of graphs for other code generators are chosen in one way"
_STRATEGY = "an operator has one compute, which the automatic scheduler schedules for every target"
_NO_LIBRARY = "no library of another vendor is called, operators are compiled for every target"
_TARGET_KERNELS = "operators are not written for one target"
_BY_CODEGEN = "code generation does this work, and no pass stands for it"
_NO_HEXAGON = "there is no code generator for Hexagon"

_USE_BUILD = "use tvm.build, or leave the pass out"
_USE_TOPI = "use the operator of topi or topi.nn and let tilewright.auto_schedule schedule it"
_USE_ONNX = "export the model to ONNX and use relay.frontend.from_onnx"

# (homes, names, why, instead)
TABLE: Final[tuple[tuple[str, str, str, str], ...]] = (
    # -- whole packages --------------------------------------------------------------------------
    (
        "meta_schedule",
        "feature_extractor.* FeatureExtractor trace_apply.* relax_integration.* schedule.*",
        "candidates are rows of tables, whose columns are their features",
        "use meta_schedule.tune_tir, tune_tasks and relay_integration; tilewright.auto_schedule needs no trials",
    ),
    (
        "meta_schedule",
        "ApplyHistoryBest EvolutionarySearchConfig ReplayFuncConfig ReplayTraceConfig TuneConfig integration.*",
        "tuning is configured by arguments, as in TVM 0.10 and later",
        "use meta_schedule.tune_tir(mod, target, work_dir, max_trials_global=…, strategy=…), which returns a database, "
        "and `with database:` around relay.build",
    ),
    (
        "meta_schedule.tune",
        "Parse extract_task_from_relay tune_each_task tune_extracted_tasks tune_relay tune_te tune_tir",
        "its functions are those of TVM 0.10 and later",
        "use meta_schedule.tune_tasks, meta_schedule.tir_integration and meta_schedule.relay_integration",
    ),
    (
        "meta_schedule.testing",
        "conv2d_winograd_cpu.* conv2d_winograd_cuda.* custom_builder_runner.* dataset_collect_models.* "
        "dataset_extract_tasks.* dataset_sample_candidates.* distributed_measure_candidates.* dummy_object.* "
        "relay_workload.* schedule_rule.* space_generation.* tir_tensor_intrin.* tlcbench.* torchbench.* tune_onnx.* "
        "tune_relay.* tune_te.* tune_utils.* utils.* validate_database.*",
        "these are programs around TVM's own tests and benchmarks",
        "import the model with relay.frontend and use meta_schedule.relay_integration.tune_relay",
    ),
    (
        "meta_schedule.testing.te_workload",
        "conv2d_nhwc_without_layout_rewrite conv2d_winograd_nchw conv2d_winograd_nhwc",
        "a convolution is written once, and the automatic scheduler chooses its algorithm and layout",
        "use meta_schedule.testing.te_workload.conv2d_nhwc",
    ),
    (
        "",
        "micro.* contrib.micro.* exec.microtvm_debug_shell.*",
        "there is no runtime for microcontrollers: an exported library has a C interface and needs none",
        "use relay.build with -mtriple of the board and export_library, and link the object file",
    ),
    (
        "",
        "utils.* exec.gpu_memory_bandwidth.* exec.measure_peak.*",
        "a schedule says why it was chosen, in the figures of the machine",
        "use tilewright.auto_schedule and explain(), or contrib.peak",
    ),
    (
        "rpc",
        "minrpc.* proxy.* server_ios_launcher.* tornado_util.*",
        "a server is one program, which registers with a tracker",
        "use tilewright.exec.rpc_server and tilewright.exec.rpc_tracker",
    ),
    ("exec", "rpc_proxy.*", "clients reach servers themselves", "use tilewright.exec.rpc_tracker"),
    (
        "exec",
        "autotvm_log_editor.* disco_worker.* popen_worker.*",
        "these are programs for TVM's own processes",
        "use autotvm.record.pick_best, or contrib.popen_pool",
    ),
    (
        "",
        "tir.usmp.* ir.memory_pools.*",
        "a model has one arena, which its executor plans",
        "use relay.build, and memory_report() of its result",
    ),
    # -- tensor expressions ----------------------------------------------------------------------
    (
        "te.hybrid",
        "build HybridModule",
        "schedules are not printed as hybrid script",
        "tvm.lower(s, args).script() is a text that can be read back",
    ),
    # -- loop programs ---------------------------------------------------------------------------
    (
        "tir.Schedule",
        "read_at write_at",
        "a copy and its place are two steps",
        "use cache_read or cache_write, then compute_at or reverse_compute_at",
    ),
    ("tir.Schedule", "enter_postproc", "a trace has no part for postprocessing", "leave the call out"),
    (
        "tir.Schedule",
        "unsafe_hide_buffer_access",
        "what a block accesses is always told",
        "leave the call out, or write the block with the regions that you want",
    ),
    (
        "tir.tensor_intrin",
        "hexagon.* rocm.*",
        "tensor instructions are described for x86, ARM and NVIDIA's GPUs",
        "register your own with tir.TensorIntrin.register",
    ),
    (
        "tir.transform",
        "BF16CastElimination BF16ComputeLegalize BF16Legalize BF16Promote BF16StorageLegalize BF16TypeLowering "
        "FP8ComputeLegalize FP8StorageLegalize",
        "code generation computes narrow floats in float32 where the hardware has nothing better",
        "leave the pass out",
    ),
    (
        "tir.transform",
        "AnnotateDeviceRegions CombineContextCall DecorateDeviceScope InstallDebugSpans "
        "LegalizePackedCalls LowerDeviceKernelLaunch LowerDeviceStorageAccessInfo "
        "LowerTVMBuiltin MakePackedAPI MakeUnpackedAPI PointerValueTypeRewrite ExtractPrimFuncConstants",
        _BY_CODEGEN,
        _USE_BUILD,
    ),
    (
        "tir.transform",
        "AllreduceTransform LowerThreadAllreduce",
        "reductions across threads are lowered from blocks",
        "use tir.transform.LowerCrossThreadReduction",
    ),
    (
        "tir.transform",
        "LiftThreadBinding RemapThreadAxis",
        "each thread axis is opened once around a kernel",
        "use tir.transform.UnifyThreadBinding",
    ),
    (
        "tir.transform",
        "MergeDynamicSharedMemoryAllocations MergeSharedMemoryAllocations",
        "allocations of every scope whose lives do not meet share memory",
        "use tir.transform.StorageRewrite",
    ),
    (
        "tir.transform",
        "ReduceBranchingThroughOvercompute UseAssumeToReduceBranches",
        "conditions leave full tiles by partitioning the loops",
        "use tir.transform.LoopPartition",
    ),
    (
        "tir.transform",
        "RenormalizeSplitPattern",
        "the normal form of expressions has this already",
        "use tir.transform.Simplify",
    ),
    (
        "tir.transform",
        "InferFragment TransformMmaBufferLayout",
        "registers of tensor cores are laid out by one pass",
        "use tir.transform.LowerFragments",
    ),
    (
        "tir.transform",
        "LowerAutoCopy ManifestSharedMemoryLocalStage",
        "copies are steps of the schedule",
        "use sch.cache_read, and sch.annotate with software_pipeline_stage",
    ),
    (
        "tir.transform",
        "InjectRollingBuffer",
        "a rolling buffer is a step of the schedule",
        "use sch.rolling_buffer",
    ),
    (
        "tir.transform",
        "ApplyLayoutTransforms RemoveWeightLayoutRewriteBlock",
        "a layout is a step of the schedule, and weights are packed while a model is compiled",
        "use sch.transform_layout",
    ),
    (
        "tir.transform",
        "DefaultGPUSchedule",
        "schedules are found by cost",
        "use tilewright.auto_schedule",
    ),
    (
        "tir.transform",
        "InstrumentProfileIntrinsics",
        "single loops are not profiled",
        "use module.time_evaluator, or the profile of contrib.debugger.debug_executor",
    ),
    ("tir.transform", "TextureFlatten", "no target has textures", "use scope 'global'"),
    (
        "tir.transform",
        "UnifiedStaticMemoryPlanner",
        "relay.build plans the memory of a model",
        "leave the pass out",
    ),
    (
        "tir.transform",
        "LowerAsyncDMA LowerVtcmAlloc VerifyVTCMLimit",
        _NO_HEXAGON,
        "use target llvm or one of the GPU targets",
    ),
    ("target", "hexagon", _NO_HEXAGON, "use target llvm or one of the GPU targets"),
    # -- operators -------------------------------------------------------------------------------
    (
        "topi",
        "adreno.* arm_cpu.* bifrost.* cuda.* generic.* gpu.* hls.* intel_graphics.* mali.* rocm.* x86.*",
        _TARGET_KERNELS,
        _USE_TOPI,
    ),
    ("topi", "hexagon.*", _NO_HEXAGON, _USE_TOPI),
    ("topi.nn.depthwise_conv2d", "_get_workload", _TARGET_KERNELS, _USE_TOPI),
    (
        "topi.sparse.utils",
        "sparse_conv2d_apply_func sparse_conv2d_meet_condition_func sparse_dense_apply_func "
        "sparse_dense_meet_condition_func sparse_sketch_rules",
        "a product with a sparse matrix is a loop that is scheduled already",
        "leave the rules out",
    ),
    # -- graphs ----------------------------------------------------------------------------------
    (
        "relay.quantize",
        "register_annotate_function register_partition_function",
        "an operator states its integer form in its declaration",
        "declare the operator with Traits(quantised=…), or replace its calls by a pass of your own before quantize",
    ),
    (
        "relay.quantize",
        "QuantizeContext kind2str partition quantize_context",
        "annotation needs no pass before it and keeps no global state",
        "use relay.quantize.annotate, calibrate and realize",
    ),
    (
        "relay.quantize",
        "_annotate.*",
        "annotation is one pass, which marks what it rounds",
        "use relay.quantize.annotate, and relay.annotation.simulated_quantize for a mark of your own",
    ),
    ("relay", "debug.*", "a compiled model does not stop", "use contrib.debugger.debug_executor"),
    (
        "relay.prelude",
        "StaticTensorArrayOps TensorArrayOps get_tensor_array_shape",
        "the library has no arrays of tensors",
        "use a List of tensors, or relay.stack and relay.take",
    ),
    (
        "relay",
        "StaticMemoryPlan StorageInfo TempExpr",
        "the memory plan is not part of the graph",
        "use relay.build, and its module's memory plan",
    ),
    (
        "relay",
        "Id SpanCheck WithScope astext base pretty_print",
        "graphs are printed by their own methods",
        "use mod.astext() or str(expr); places in the source are tvm.ir.Span",
    ),
    (
        "relay.op.strategy",
        "adreno.* arm_cpu.* bifrost.* cuda.* hexagon.* hls.* intel_graphics.* mali.* rocm.* x86.*",
        _STRATEGY,
        "extend relay.op.strategy.generic for the keys of a target, or use relay.op.register_strategy",
    ),
    (
        "relay.op",
        "register_external_compiler",
        "an operator is given to another code generator by patterns",
        "use relay.op.contrib.register_pattern_table, or tvm.ir.register_op_attr(op, 'target.NAME')",
    ),
    (
        "relay.contrib relay.op.contrib",
        "arm_compute_lib.* bnns.* clml.* cmsisnn.* coreml.* cublas.* cudnn.* cutlass.* ethosn.* ethosu.* libtorch.* "
        "mrvl.* tensorrt.* vitis_ai.* te_target.*",
        "there is no code generator for this engine",
        "use relay.op.contrib.dnnl.partition_for_dnnl or relay.op.contrib.onnxruntime.partition_for_onnxruntime, or "
        "a code generator of your own, as docs/byoc.md shows",
    ),
    (
        "relay",
        "sparse_fill_empty_rows",
        "the operator is not there",
        "write the computation with te, or of other operators",
    ),
    (
        "relay",
        "copy_shape_func shape_func memory",
        "the executor places and allocates memory, and the graph does not speak of it",
        "leave it out",
    ),
    ("relay", "collage", _ELSEWHERE, "use AnnotateTarget, MergeCompilerRegions and PartitionGraph"),
    (
        "relay",
        "op_attrs",
        "the attributes of an operator are one class for all operators",
        "use relay.op.Attrs",
    ),
    (
        "relay.transform",
        "CollagePartition OutlineCompilerFunctions",
        _ELSEWHERE,
        "use AnnotateTarget, MergeCompilerRegions and PartitionGraph",
    ),
    (
        "relay.transform",
        "ManifestAlloc ManifestLifetimes RemoveStandaloneReshapes MemoryPlan memory_plan",
        "the compiler of each executor plans memory, and reshapes are views",
        "use relay.build or relay.vm.compile",
    ),
    (
        "relay.transform",
        "Defunctionalization ToCPS UnCPS to_cps un_cps",
        "functions are called by the virtual machine as they are",
        "use ToANormalForm and LambdaLift",
    ),
    (
        "relay.transform",
        "FlexibleShapeDispatch flexible_shape",
        "a kernel takes every size in its range",
        "give the dimension as relay.Any() and use relay.vm.compile",
    ),
    (
        "relay.transform",
        "BatchingOps",
        "the batch is a size of the model",
        "import the model with the shape that you want",
    ),
    (
        "relay.transform",
        "CapturePostDfsIndexInSpans ExtractFakeQuantizedOps ExtractOperators LabelOps suffixes",
        "graphs carry no notes of this kind",
        "use relay.analysis.list_op_freqs or post_order_visit",
    ),
    (
        "relay.transform",
        "CombineParallelOpBatch FoldConstantExpr ToANormalFormExpr",
        "it is a part of another pass",
        "use CombineParallelDense, SimplifyExpr, FoldConstant or ToANormalForm",
    ),
    (
        "relay.transform",
        "LayoutConfig",
        "layouts are chosen by one table",
        "use relay.transform.ConvertLayout with the layouts that you want",
    ),
    (
        "relay.transform",
        "fake_quantization_to_integer",
        "rules of passes for an operator are declared where the operator is",
        "use relay.transform.FakeQuantizationToInteger, or a pass of your own",
    ),
    (
        "relay.transform",
        "RecastMutator",
        "recasting is one function",
        "use relay.transform.recast",
    ),
    (
        "relay.analysis",
        "collect_device_annotation_ops collect_device_info context_analysis",
        "a model runs on one device and its host",
        "leave the call out",
    ),
    (
        "relay.analysis",
        "AnalyzeOperationsDistribution LayerCounter all_dtypes analyze_operations_distribution check_constant "
        "operations_distribution",
        "the question is answered by a walk over the graph",
        "use relay.analysis.post_order_visit, count_layers or list_op_freqs",
    ),
    (
        "relay.testing",
        "darknet.* resnet_3d.* tf.* tflite.* yolo_detection.*",
        "this model or helper is not written",
        "use another network of relay.testing, such as resnet or lstm, or import a model",
    ),
    (
        "relay.testing.py_converter relay.testing",
        "to_python",
        "graphs are not written as Python programs",
        "use relay.testing.run_as_python, or relay.create_executor",
    ),
    (
        "relay.testing",
        "ctx_list enabled_targets",
        "helpers of tests are in one place",
        "use tilewright.testing.enabled_targets, and NumPy for random arrays",
    ),
    (
        "relay.frontend",
        "from_caffe from_caffe2 from_coreml from_darknet from_mxnet from_oneflow from_paddle from_tflite",
        "models come from ONNX, PyTorch, Keras and TensorFlow",
        _USE_ONNX,
    ),
    # -- the command line and tools --------------------------------------------------------------
    (
        "_ffi",
        "libinfo.*",
        "no library of a runtime and no headers are installed",
        "a module that export_library writes runs by itself and has a C header of its own",
    ),
    (
        "testing",
        "ErrorTest FrontendTestModule identity_cpp object_use_count run_check_signal "
        "test_check_eq_callback test_raise_error_callback test_wrap_callback",
        "values do not cross a border to C++ when functions are called",
        "leave the call out",
    ),
    (
        "contrib",
        "spirv.*",
        "no target has SPIR-V for its code",
        "use target opencl, whose code is OpenCL C",
    ),
    (
        "autotvm.database",
        "RedisDatabase",
        "records are kept in files and in SQLite",
        "use autotvm.callback.log_to_file, or tilewright.tune.records.Database, to which several processes may write",
    ),
    (
        "contrib",
        "cublas.* cublaslt.* cutlass.* dnnl.* hipblas.* miopen.* mps.* mrvl.* nnpack.* rocblas.* tensorrt.* tf_op.* "
        "tflite_runtime.* thrust.*",
        _NO_LIBRARY,
        "use the operator of topi or relay",
    ),
    (
        "contrib",
        "sort.*",
        "no functions of a runtime library are called",
        "use topi.sort and topi.argsort",
    ),
    (
        "contrib.torch",
        "GraphModule VMModule TraceTvmModule pytorch_tvm.* module.*",
        "a PyTorch model is compiled by the importer of graphs",
        "use contrib.torch.optimize_torch, or relay.frontend.from_pytorch and relay.build",
    ),
    (
        "contrib",
        "coreml_runtime.* emcc.* hexagon.* xcode.*",
        "there is no runtime and no tool chain for this platform",
        "use export_library for a shared library and a C header, or a Metal target",
    ),
    # -- the example accelerator -----------------------------------------------------------------
    (
        "vta",
        "reconfig_runtime program_fpga program_bitstream.* download_bitstream get_bitstream_path bitstream.* "
        "rpc_client.* exec.* libinfo.*",
        "the chip is simulated, and there is no board to program",
        "run programs in the simulator; for a board of your own, mod.export_c(folder) writes the calls of its driver",
    ),
    (
        "vta",
        "autotvm.* transform.*",
        "there are no templates and passes for this chip alone",
        "tune with tilewright.auto_schedule(func, 'ext_dev', trials=64); the passes are tir.transform's",
    ),
    (
        "vta.top",
        "bitpack.* op.*",
        "numbers in the memory of the chip have at least 8 bits, and relay.build offloads operators by itself",
        "build the network with relay.build, or a packed operator with vta.top.conv2d_packed",
    ),
)
