"""What is known about integers: bounds, residues, normal forms, sets and maps of iterations."""

from . import int_set
from .analyzer import Analyzer, ConstIntBound, ModularSet
from .int_set import IntervalSet, IntSet, eval_set

__all__ = [
    "Analyzer",
    "ConstIntBound",
    "IntSet",
    "IntervalSet",
    "ModularSet",
    "eval_set",
    "int_set",
]
