"""Integer arithmetic analysis: bounds, residues, normal forms, integer sets and iteration maps."""

from . import int_set
from .analyzer import Analyzer, ConstIntBound, Extension, ModularSet, ProofStrength
from .int_set import IntervalSet, IntSet, eval_set, region_union
from .iter_affine import inverse_affine_iter_map, subspace_divide
from .iter_expr import IterMapExpr, IterMark, IterSplitExpr, IterSumExpr, normalize_iter_map_to_expr
from .iter_map import (
    IterMapLevel,
    IterMapResult,
    detect_iter_map,
    iter_map_simplify,
    normalize_to_iter_sum,
)
from .linear import (
    IntConstraints,
    IntConstraintsTransform,
    deduce_bound,
    detect_clip_bound,
    detect_linear_equation,
    solve_linear_equations,
)
from .region import (
    estimate_region_lower_bound,
    estimate_region_strict_bound,
    estimate_region_upper_bound,
    relax_region,
)

__all__ = [
    "Analyzer",
    "ConstIntBound",
    "Extension",
    "IntConstraints",
    "IntConstraintsTransform",
    "IntSet",
    "IntervalSet",
    "IterMapExpr",
    "IterMapLevel",
    "IterMapResult",
    "IterMark",
    "IterSplitExpr",
    "IterSumExpr",
    "ModularSet",
    "ProofStrength",
    "deduce_bound",
    "detect_clip_bound",
    "detect_iter_map",
    "detect_linear_equation",
    "estimate_region_lower_bound",
    "estimate_region_strict_bound",
    "estimate_region_upper_bound",
    "eval_set",
    "int_set",
    "inverse_affine_iter_map",
    "iter_map_simplify",
    "normalize_iter_map_to_expr",
    "normalize_to_iter_sum",
    "region_union",
    "relax_region",
    "solve_linear_equations",
    "subspace_divide",
]
