"""Passes over graph functions, one file each.

A pass is a function `(func, mod, ctx) -> func` made known by `function_pass`, or `(mod, ctx) -> mod` by
`module_pass`. What it returns need not have types: run `InferType` after, or use `infer_type` inside. A plain
function `Function -> Function` gets its factory from `as_function_pass`. Each pass is imported here, so that a
`PassContext` knows its name.
"""

from __future__ import annotations

from ...absent import absent, attributes
from ...ir.transform import FunctionPass, ModulePass, Pass, PassContext, PassInfo, Sequential, module_pass
from .alter_op_layout import AlterOpLayout
from .annotate_spans import AnnotateSpans
from .canonicalize_cast import CanonicalizeCast
from .canonicalize_ops import CanonicalizeOps
from .canonicalize_qnn import canonicalize_qnn_ops as canonicalize_qnn_ops
from .check_data import CheckData
from .combine_parallel import CombineParallelBatchMatmul, CombineParallelConv2D, CombineParallelDense
from .convert_layout import ConvertLayout
from .dead_code import DeadCodeElimination
from .defuse_ops import DefuseOps
from .delay_reshape import DelayReshape
from .dynamic_to_static import DynamicToStatic
from .eliminate_common_subexpr import EliminateCommonSubexpr
from .eta_expand import EtaExpand
from .fake_quantization import FakeQuantizationToInteger
from .fast_math import FastMath
from .flatten_atrous_conv import FlattenAtrousConv
from .fold_constant import FoldConstant
from .fold_explicit_padding import FoldExplicitPadding
from .fold_scale_axis import BackwardFoldScaleAxis, FoldScaleAxis, ForwardFoldScaleAxis
from .fold_sizes import FoldSizes
from .function_pass import as_function_pass, function_pass
from .fuse_ops import FuseOps
from .group_attention import GroupAttention
from .infer_type import InferType, InferTypeLocal, infer_module, infer_type
from .inline import Inline
from .lambda_lift import LambdaLift
from .legalize import Legalize
from .merge_composite import MergeComposite
from .mixed_precision import ToMixedPrecision
from .normal_form import ToANormalForm, ToBasicBlockNormalForm, ToGraphNormalForm
from .recast import recast
from .remove_unused_functions import RemoveUnusedFunctions
from .simplify_expr import SimplifyExpr
from .simplify_inference import SimplifyInference
from .slices_of_splits import SlicesOfSplits
from .split_args import SplitArgs
from .use_tensor_cores import UseTensorCores

__all__ = [
    "AlterOpLayout",
    "AnnotateSpans",
    "BackwardFoldScaleAxis",
    "CanonicalizeCast",
    "CanonicalizeOps",
    "CheckData",
    "CombineParallelBatchMatmul",
    "CombineParallelConv2D",
    "CombineParallelDense",
    "ConvertLayout",
    "DeadCodeElimination",
    "DefuseOps",
    "DelayReshape",
    "DynamicToStatic",
    "EliminateCommonSubexpr",
    "EtaExpand",
    "FakeQuantizationToInteger",
    "FastMath",
    "FirstOrderGradient",
    "FlattenAtrousConv",
    "FoldConstant",
    "FoldExplicitPadding",
    "FoldScaleAxis",
    "FoldSizes",
    "ForwardFoldScaleAxis",
    "FunctionPass",
    "FuseOps",
    "GroupAttention",
    "InferType",
    "InferTypeLocal",
    "Inline",
    "LambdaLift",
    "Legalize",
    "MergeComposite",
    "ModulePass",
    "PartialEvaluate",
    "Pass",
    "PassContext",
    "PassInfo",
    "RemoveUnusedFunctions",
    "Sequential",
    "SimplifyExpr",
    "SimplifyInference",
    "SlicesOfSplits",
    "SplitArgs",
    "ToANormalForm",
    "ToBasicBlockNormalForm",
    "ToGraphNormalForm",
    "ToMixedPrecision",
    "UseTensorCores",
    "as_function_pass",
    "function_pass",
    "gradient",
    "infer_module",
    "infer_type",
    "module_pass",
    "recast",
]

FirstOrderGradient, PartialEvaluate, gradient = (
    absent(f"relay.transform.{name}") for name in ("FirstOrderGradient", "PartialEvaluate", "gradient")
)
__getattr__ = attributes(__name__)
