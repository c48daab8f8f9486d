"""LLVM: flat TIR to text, text to machine code, machine code to callable modules."""

from .build import build_llvm
from .module import LLVMModule

__all__ = ["LLVMModule", "build_llvm"]
