"""Passes over graph functions, one file each.

A pass is a function `(func, mod, ctx) -> func` made known by `function_pass`, or `(mod, ctx) -> mod` by
`module_pass`. What it returns need not have types: run `InferType` after, or use `infer_type` inside. The passes here
are plain functions `Function -> Function`, whose factories `typed_pass` makes. Each is imported here, so that a
`PassContext` knows its name.
"""

from __future__ import annotations

from ...absent import attributes
from ...ir.transform import FunctionPass as FunctionPass
from ...ir.transform import ModulePass as ModulePass
from ...ir.transform import Pass as Pass
from ...ir.transform import PassContext as PassContext
from ...ir.transform import PassInfo as PassInfo
from ...ir.transform import Sequential as Sequential
from ...ir.transform import module_pass as module_pass
from .alter_op_layout import AlterOpLayout as AlterOpLayout
from .annotate_spans import AnnotateSpans as AnnotateSpans
from .annotate_target import AnnotateTarget as AnnotateTarget
from .average_products import AveragesAsProducts as AveragesAsProducts
from .canonicalize_cast import CanonicalizeCast as CanonicalizeCast
from .canonicalize_ops import CanonicalizeOps as CanonicalizeOps
from .canonicalize_qnn import canonicalize_qnn_ops as canonicalize_qnn_ops
from .change_batch import ChangeBatch as ChangeBatch
from .check_data import CheckData as CheckData
from .combine_parallel import CombineParallelBatchMatmul as CombineParallelBatchMatmul
from .combine_parallel import CombineParallelConv2D as CombineParallelConv2D
from .combine_parallel import CombineParallelDense as CombineParallelDense
from .compiler_functions import InlineCompilerFunctionsBoundTo as InlineCompilerFunctionsBoundTo
from .compiler_functions import InlineComposites as InlineComposites
from .compiler_functions import MarkCompilerFunctionsAsExtern as MarkCompilerFunctionsAsExtern
from .compiler_functions import (
    OutlineCompilerFunctionsWithExistingGlobalSymbols as OutlineCompilerFunctionsWithExistingGlobalSymbols,
)
from .convert_layout import ConvertLayout as ConvertLayout
from .dead_code import DeadCodeElimination as DeadCodeElimination
from .defuse_ops import DefuseOps as DefuseOps
from .delay_reshape import DelayReshape as DelayReshape
from .div_to_mul import DivToMul as DivToMul
from .dynamic_to_static import DynamicToStatic as DynamicToStatic
from .eliminate_common_subexpr import EliminateCommonSubexpr as EliminateCommonSubexpr
from .eta_expand import EtaExpand as EtaExpand
from .fake_quantization import FakeQuantizationToInteger as FakeQuantizationToInteger
from .fast_math import FastMath as FastMath
from .flatten_atrous_conv import FlattenAtrousConv as FlattenAtrousConv
from .fold_constant import FoldConstant as FoldConstant
from .fold_explicit_padding import FoldExplicitPadding as FoldExplicitPadding
from .fold_scale_axis import BackwardFoldScaleAxis as BackwardFoldScaleAxis
from .fold_scale_axis import FoldScaleAxis as FoldScaleAxis
from .fold_scale_axis import ForwardFoldScaleAxis as ForwardFoldScaleAxis
from .fold_sizes import FoldSizes as FoldSizes
from .function_pass import function_pass as function_pass
from .fuse_ops import FuseOps as FuseOps
from .gradient import FirstOrderGradient as FirstOrderGradient
from .gradient import LazyGradientInit as LazyGradientInit
from .gradient import gradient as gradient
from .group_attention import GroupAttention as GroupAttention
from .infer_layout_utils import InferCorrectLayoutOutput as InferCorrectLayoutOutput
from .infer_type import InferType as InferType
from .infer_type import InferTypeLocal as InferTypeLocal
from .infer_type import infer_module as infer_module
from .infer_type import infer_type as infer_type
from .inline import Inline as Inline
from .lambda_lift import LambdaLift as LambdaLift
from .legalize import Legalize as Legalize
from .merge_compiler_regions import MergeCompilerRegions as MergeCompilerRegions
from .merge_composite import MergeComposite as MergeComposite
from .mixed_precision import ToMixedPrecision as ToMixedPrecision
from .normal_form import ToANormalForm as ToANormalForm
from .normal_form import ToBasicBlockNormalForm as ToBasicBlockNormalForm
from .normal_form import ToGraphNormalForm as ToGraphNormalForm
from .offload import Offload as Offload
from .partial_evaluate import PartialEvaluate as PartialEvaluate
from .partition_graph import PartitionGraph as PartitionGraph
from .plan_devices import PlanDevices as PlanDevices
from .recast import recast as recast
from .remove_unused_functions import RemoveUnusedFunctions as RemoveUnusedFunctions
from .simplify_expr import SimplifyExpr as SimplifyExpr
from .simplify_inference import SimplifyInference as SimplifyInference
from .slices_of_splits import SlicesOfSplits as SlicesOfSplits
from .sparse_weights import Conv2dToSparse as Conv2dToSparse
from .sparse_weights import Conv2dToSparse2 as Conv2dToSparse2
from .sparse_weights import DenseToSparse as DenseToSparse
from .sparse_weights import SimplifyFCTranspose as SimplifyFCTranspose
from .split_args import SplitArgs as SplitArgs
from .split_phases import SplitPhases as SplitPhases
from .use_tensor_cores import UseTensorCores as UseTensorCores

__getattr__ = attributes(__name__)
