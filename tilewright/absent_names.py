"""The table of names of the classic API that tilewright does not have. `absent.py` says how it is used.

A row is the modules or the class in which the names stand, the names, why they are absent, and what to use instead. A
name that ends with `.*` is a module that is absent with all that is below it, or all that a module does not have.
"""

from __future__ import annotations

from typing import Final

_ADT = "graphs have no algebraic data types and no pattern matching"
_REFS = "graphs have no references to memory that changes"
_ELSEWHERE = "graphs are not cut into parts for the compilers of others"
_STRATEGY = "an operator has one compute, which the automatic scheduler schedules for every target"
_NO_LIBRARY = "no library of another vendor is called, operators are compiled for every target"
_TARGET_KERNELS = "operators are not written for one target"
_BY_CODEGEN = "code generation does this work, and no pass stands for it"
_NO_HEXAGON = "there is no code generator for Hexagon"

_USE_TUPLES = "use tuples, relay.If and recursive relay functions"
_USE_FRAMEWORK = "take gradients in the framework that the model comes from"
_USE_BUILD = "use tvm.build, or leave the pass out"
_USE_TOPI = "use the operator of topi or topi.nn and let tilewright.auto_schedule schedule it"
_USE_ONNX = "export the model to ONNX and use relay.frontend.from_onnx"

# (homes, names, why, instead)
TABLE: Final[tuple[tuple[str, str, str, str], ...]] = (
    # -- whole packages --------------------------------------------------------------------------
    (
        "",
        "meta_schedule.*",
        "there is one search and it has other names",
        "tune a program with auto_scheduler.SearchTask and a model with auto_scheduler.extract_tasks or tvmc.tune; "
        "tilewright.auto_schedule needs no trials at all",
    ),
    (
        "script",
        "ir_builder.*",
        "programs are not built by frames",
        "write the program as a @T.prim_func, or build it with tir.ir_builder.create()",
    ),
    # -- tensor expressions ----------------------------------------------------------------------
    ("te", "gradient", "tensor expressions are not differentiated", _USE_FRAMEWORK),
    (
        "te",
        "trace",
        "compiled code does not call back for single elements",
        "make the tensor an output of the function, or run the program with tir.interpret",
    ),
    (
        "te",
        "TensorComputeOp",
        "a tensor intrinsic is not called inside te.compute",
        "write the computation and use s[tensor].tensorize",
    ),
    ("te", "HybridOp", "a hybrid script becomes a te.ExternOp", "use te.hybrid.script"),
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
        "BF16ComputeLegalize BF16Legalize BF16StorageLegalize FP8ComputeLegalize FP8StorageLegalize",
        "code generation computes narrow floats in float32 where the hardware has nothing better",
        "leave the pass out",
    ),
    (
        "tir.transform",
        "AnnotateDeviceRegions AnnotateEntryFunc BindTarget CombineContextCall DecorateDeviceScope InstallDebugSpans "
        "LegalizePackedCalls LowerCustomDatatypes LowerDeviceKernelLaunch LowerDeviceStorageAccessInfo "
        "LowerTVMBuiltin MakePackedAPI MakeUnpackedAPI PointerValueTypeRewrite RemoveAssume RemoveStoreUndef "
        "ExtractPrimFuncConstants",
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
    (
        "tir.transform",
        "Filter",
        "modules are filtered in Python",
        "use tvm.IRModule({v: f for v, f in mod.functions.items() if keep(f)})",
    ),
    ("tir.transform", "TextureFlatten", "no target has textures", "use scope 'global'"),
    (
        "tir.transform",
        "UnifiedStaticMemoryPlanner",
        "relay.build plans the memory of a model",
        "leave the pass out",
    ),
    ("tir.transform", "VerifyMemory", "it changes no program", "use tir.analysis.verify_memory"),
    (
        "tir.transform",
        "LowerAsyncDMA LowerVtcmAlloc VerifyVTCMLimit",
        _NO_HEXAGON,
        "use target llvm or one of the GPU targets",
    ),
    ("target", "hexagon", _NO_HEXAGON, "use target llvm or one of the GPU targets"),
    # -- operators -------------------------------------------------------------------------------
    ("topi", "arm_cpu.* bifrost.* cuda.* mali.* x86.*", _TARGET_KERNELS, _USE_TOPI),
    (
        "topi.sparse.utils",
        "convert_model_dense_to_sparse random_sparse_conv2d_params random_sparse_dense_params "
        "sparse_conv2d_apply_func sparse_conv2d_meet_condition_func sparse_dense_apply_func "
        "sparse_dense_meet_condition_func sparse_sketch_rules",
        "models are not made sparse",
        "multiply with topi.sparse.csrmm or relay.nn.sparse_dense",
    ),
    # -- graphs ----------------------------------------------------------------------------------
    (
        "relay",
        "Clause Constructor GlobalTypeVar Match Pattern PatternConstructor PatternTuple PatternVar PatternWildcard "
        "TypeCall TypeData adt.*",
        _ADT,
        _USE_TUPLES,
    ),
    (
        "relay",
        "prelude.*",
        "there is no library of functions over algebraic data types",
        "use tuples, and relay.concatenate or relay.stack for lists of tensors",
    ),
    ("relay relay.expr", "RefCreate RefRead RefWrite", _REFS, "use relay.Let, or results of functions"),
    (
        "relay",
        "loops.* while_loop",
        "graphs have no loop of their own",
        "write a recursive relay function; the virtual machine runs it",
    ),
    (
        "relay",
        "random.*",
        "graphs have no generator of random numbers",
        "draw the numbers with NumPy and hand them over as inputs",
    ),
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
        "relay relay.expr",
        "CallWithFields ConstantWithFields FunctionWithFields IfWithFields LetWithFields RefCreateWithFields "
        "RefReadWithFields RefWriteWithFields TupleGetItemWithFields TupleWithFields VarWithFields",
        "expressions are copied in one way",
        "use expr.replace(field=value), which gives a copy with the fields changed",
    ),
    (
        "relay",
        "ShapeVar TypeConstraint TypeKind TypeRelation",
        "types are tensors, tuples, functions and variables of them",
        "use relay.TensorType with relay.Any or a tir.Var for a size",
    ),
    (
        "relay",
        "StaticMemoryPlan StorageInfo TempExpr",
        "the memory plan is not part of the graph",
        "use relay.build, and its module's memory plan",
    ),
    (
        "relay",
        "Id SourceName SpanCheck WithScope astext base pretty_print",
        "graphs are printed by their own methods",
        "use mod.astext() or str(expr); places in the source are tvm.ir.Span",
    ),
    (
        "relay.op",
        "contrib.*",
        _STRATEGY,
        "use relay.op.register and relay.op.register_compute",
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
        "an operator is given to an accelerator by patterns",
        "use relay.op.register_op_attr, or a pass of your own",
    ),
    (
        "relay",
        "dft stft sparse_fill_empty_rows sparse_reshape",
        "the operator is not there",
        "write the computation with te, or of other operators",
    ),
    (
        "relay",
        "copy_shape_func device_copy shape_func memory",
        "the executor places and allocates memory, and the graph does not speak of it",
        "leave it out",
    ),
    ("relay", "collage", _ELSEWHERE, "use relay.build, which compiles all of the graph"),
    (
        "relay",
        "data_dep_optimization",
        "models are not made sparse",
        "multiply with relay.nn.sparse_dense",
    ),
    (
        "relay",
        "op_attrs",
        "the attributes of an operator are one class for all operators",
        "use relay.op.Attrs",
    ),
    (
        "relay.transform",
        "PartialEvaluate",
        "its work on models is done by smaller passes",
        "use FoldConstant, Inline and DeadCodeElimination",
    ),
    (
        "relay.transform",
        "AnnotateTarget CollagePartition InlineComposites InlineCompilerFunctionsBoundTo "
        "MarkCompilerFunctionsAsExtern MergeCompilerRegions OutlineCompilerFunctions "
        "OutlineCompilerFunctionsWithExistingGlobalSymbols PartitionGraph",
        _ELSEWHERE,
        "use MergeComposite for functions of your own, and relay.build for all of the graph",
    ),
    (
        "relay.transform",
        "Conv2dToSparse Conv2dToSparse2 DenseToSparse SimplifyFCTranspose",
        "models are not made sparse",
        "multiply with relay.nn.sparse_dense",
    ),
    (
        "relay.transform",
        "ManifestAlloc ManifestLifetimes PlanDevices RemoveStandaloneReshapes memory_plan",
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
        "BatchingOps ChangeBatch",
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
        "CombineParallelOpBatch DivToMul FoldConstantExpr ToANormalFormExpr",
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
        "check_kind unmatched_cases",
        _ADT,
        "relay.analysis.check_well_formed checks a graph",
    ),
    (
        "relay.analysis",
        "AnnotatedRegionSet annotated_regions collect_device_annotation_ops collect_device_info context_analysis "
        "get_calibration_data",
        _ELSEWHERE,
        "use relay.build, which compiles all of the graph",
    ),
    (
        "relay.analysis",
        "search_dense_op_weight search_fc_transpose sparse_conv2d.* sparse_dense.*",
        "models are not made sparse",
        "multiply with relay.nn.sparse_dense",
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
        "darknet.* dcgan.* densenet.* dqn.* lstm.* nat.* py_converter.* resnet_3d.* tf.* tflite.* yolo_detection.*",
        "this model or helper is not written",
        "use mlp, resnet, mobilenet, squeezenet, vgg or inception_v3 of relay.testing, or import a model",
    ),
    (
        "relay.testing",
        "make_nat_expr make_nat_value",
        "there are no algebraic types",
        "use relay.const and functions that call themselves",
    ),
    (
        "relay.testing",
        "ctx_list enabled_targets count",
        "helpers of tests are in one place",
        "use tilewright.testing.enabled_targets, and NumPy for random arrays",
    ),
    (
        "relay.frontend",
        "ChangeDatatype from_caffe from_caffe2 from_coreml from_darknet from_mxnet from_oneflow from_paddle "
        "from_tflite",
        "models come from ONNX, PyTorch, Keras and TensorFlow",
        _USE_ONNX,
    ),
    # -- the command line and tools --------------------------------------------------------------
    (
        "driver.tvmc",
        "composite_target.* pass_config.* pass_list.* target.* transform.*",
        "the command line parses its own arguments",
        "use tvm.target.Target, PassContext and relay.transform",
    ),
    (
        "autotvm.database",
        "RedisDatabase",
        "records are kept in files and in SQLite",
        "use autotvm.callback.log_to_file, or tilewright.tune.records.Database, to which several processes may write",
    ),
    (
        "contrib",
        "cblas.* cublas.* cublaslt.* cutlass.* dnnl.* hipblas.* mkl.* nnpack.* rocblas.* tensorrt.* thrust.*",
        _NO_LIBRARY,
        "use the operator of topi or relay",
    ),
    (
        "contrib",
        "relay_viz.*",
        "graphs are not drawn",
        "print(mod) shows the graph as text, and relay.analysis.post_order_visit walks it for a tool of your own",
    ),
    (
        "contrib",
        "random.* sort.* sparse.*",
        "no functions of a runtime library are called",
        "use NumPy for random numbers, topi.sort and topi.argsort, and topi.sparse.csrmm",
    ),
    (
        "contrib",
        "coreml_runtime.* emcc.* hexagon.* xcode.*",
        "there is no runtime and no tool chain for this platform",
        "use export_library for a shared library and a C header, or a Metal target",
    ),
    ("contrib", "peak.*", "a machine is measured in another place", "use tilewright.target.measure"),
    (
        "contrib",
        "pipeline_executor.*",
        "a model runs on one device at a time",
        "build each part with relay.build and run them from threads of your own",
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
        "bitpack.* conv2d_packed schedule_conv2d_packed conv2d_transpose_packed "
        "schedule_conv2d_transpose_packed group_conv2d_packed schedule_group_conv2d_packed dense_packed "
        "schedule_dense_packed op.*",
        "operators have no schedules by hand",
        "write the packed program with te and let tilewright.auto_schedule(func, 'ext_dev') schedule it, or build the "
        "network with relay.build",
    ),
)
