"""Networks of Hugging Face's transformers for bench/models.py: usual widths, few layers, random weights, no downloads.

A row of NETWORKS names the configuration with its sizes, the class of the network, and its input: so many tokens, or
the shape of an image or of a sound.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
_WORDS = 8000


@dataclass(frozen=True)
class Network:
    config: str
    network: str
    input: int | tuple[int, ...]
    sizes: dict[str, Any] = field(default_factory=dict)
    folder: str = (
        ""  # where a class is that the package does not export: its module below transformers.models
    )
    attention: bool = True  # has fused attention to choose

    @property
    def scores(self) -> bool:
        return "LM" in self.network


def _words(**sizes: Any) -> dict[str, Any]:
    return {"vocab_size": _WORDS, **sizes}


def _decoder(groups: int) -> dict[str, Any]:
    return _words(
        hidden_size=768,
        intermediate_size=2048,
        num_hidden_layers=2,
        num_attention_heads=12,
        num_key_value_heads=groups,
    )


_IMAGE = (1, 3, 224, 224)
NETWORKS: dict[str, Network] = {
    "bert": Network("BertConfig", "BertModel", 128, _words(num_hidden_layers=2)),
    "distilbert": Network("DistilBertConfig", "DistilBertModel", 128, _words(n_layers=2)),
    "gpt2": Network("GPT2Config", "GPT2LMHeadModel", 128, _words(n_layer=2)),
    "llama": Network("LlamaConfig", "LlamaForCausalLM", 128, _decoder(4)),
    "qwen2": Network("Qwen2Config", "Qwen2ForCausalLM", 128, _decoder(2)),
    "t5": Network(
        "T5Config", "T5EncoderModel", 128, _words(d_model=512, num_layers=2), attention=False
    ),
    "vit": Network("ViTConfig", "ViTModel", _IMAGE, {"num_hidden_layers": 2}),
    "swin": Network("SwinConfig", "SwinModel", _IMAGE, {"depths": [1, 1, 2, 1]}, attention=False),
    "convnext": Network("ConvNextConfig", "ConvNextModel", _IMAGE, {"depths": [1, 1, 2, 1]}, attention=False),
    "segformer": Network("SegformerConfig", "SegformerModel", _IMAGE, attention=False),
    "wav2vec2": Network("Wav2Vec2Config", "Wav2Vec2Model", (1, 16000), {"num_hidden_layers": 2}),
    "whisper": Network(
        "WhisperConfig",
        "WhisperEncoder",
        (1, 80, 3000),
        {"d_model": 384, "encoder_layers": 2, "encoder_attention_heads": 6, "encoder_ffn_dim": 1536},
        folder="whisper.modeling_whisper",
    ),
}  # fmt: skip


def network(name: str) -> tuple[Any, dict[str, Array]]:
    """A network that takes one input and returns one tensor, with its input; the same every time."""
    import torch
    import transformers

    transformers.logging.set_verbosity_error()
    row = NETWORKS[name]
    torch.manual_seed(0)
    place = import_module(f"transformers.models.{row.folder}") if row.folder else transformers
    options = {"attn_implementation": "sdpa"} if row.attention else {}
    made = getattr(place, row.network)(getattr(transformers, row.config)(**row.sizes, **options)).eval()
    result = "logits" if row.scores else "last_hidden_state"
    extra = {"use_cache": False} if row.scores else {}

    class One(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = made

        def forward(self, x: torch.Tensor) -> Any:
            return self.net(x, **extra)[result]

    rng = np.random.default_rng(1)
    if isinstance(row.input, int):
        return One().eval(), {"x": rng.integers(1, _WORDS, (1, row.input))}
    return One().eval(), {"x": rng.standard_normal(row.input, dtype=np.float32)}
