"""Source code in languages of the C family: one printer over flat loop programs, a dialect for each language."""

from .build import SourceModule, build_c, build_source
from .kernel import Program

__all__ = ["Program", "SourceModule", "build_c", "build_source"]
