"""Parameters as bytes, in the safetensors format: the classic home of what `runtime.params` does."""

from __future__ import annotations

from ..runtime.params import load_param_dict, save_param_dict

__all__ = ["load_param_dict", "save_param_dict"]
