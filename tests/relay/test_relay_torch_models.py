"""Small models of `transformers` with random weights, through torch.export and through a trace, against eager."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import pytest

torch = pytest.importorskip("torch")
if find_spec("transformers") is None:
    pytest.skip("needs the Python package transformers", allow_module_level=True)

import torch_cases  # noqa: E402

from tilewright import relay  # noqa: E402

pytestmark = pytest.mark.slow
TEXT = {"vocab_size": 50, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}


def _hub() -> Any:
    """The package, which takes a second to load."""
    import transformers

    return transformers


def _ids() -> Any:
    return torch.randint(3, 50, (1, 10))


def bert() -> Any:
    config = _hub().BertConfig(
        **TEXT, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=48
    )
    mask = torch.tensor([[1] * 8 + [0] * 2])
    return _hub().BertModel(config), {"input_ids": _ids(), "attention_mask": mask}


def gpt2() -> Any:
    config = _hub().GPT2Config(**TEXT, n_positions=32, n_embd=32, n_layer=2, n_head=2, use_cache=False)
    return _hub().GPT2LMHeadModel(config), {"input_ids": _ids()}


def vit() -> Any:
    config = _hub().ViTConfig(
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=48,
        image_size=32,
        patch_size=8,
    )
    return _hub().ViTModel(config), {"pixel_values": torch.randn(1, 3, 32, 32)}


def t5_encoder() -> Any:
    config = _hub().T5Config(**TEXT, d_model=32, d_kv=8, d_ff=48, num_layers=2, num_heads=4)
    return _hub().T5EncoderModel(config), {"input_ids": _ids()}


def llama() -> Any:
    config = _hub().LlamaConfig(
        **TEXT, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=32, use_cache=False,
    )  # fmt: skip
    return _hub().LlamaForCausalLM(config), {"input_ids": _ids()}


def whisper_encoder() -> Any:
    from transformers.models.whisper.modeling_whisper import WhisperEncoder

    config = _hub().WhisperConfig(
        **TEXT, d_model=32, encoder_layers=2, encoder_attention_heads=2, encoder_ffn_dim=48, num_mel_bins=8,
        max_source_positions=20, decoder_start_token_id=1,
    )  # fmt: skip
    return WhisperEncoder(config), {"input_features": torch.randn(1, 8, 40)}


def convnext() -> Any:
    config = _hub().ConvNextConfig(hidden_sizes=[8, 16, 24, 32], depths=[1, 1, 2, 1], image_size=32)
    return _hub().ConvNextModel(config), {"pixel_values": torch.randn(1, 3, 32, 32)}


def swin() -> Any:
    config = _hub().SwinConfig(
        image_size=32, patch_size=2, embed_dim=16, depths=[2, 2], num_heads=[2, 4], window_size=4
    )
    return _hub().SwinModel(config), {"pixel_values": torch.randn(1, 3, 32, 32)}


def mobilevit() -> Any:
    config = _hub().MobileViTConfig(
        image_size=64,
        hidden_sizes=[16, 24, 32],
        neck_hidden_sizes=[8, 12, 16, 20, 24, 28, 32],
        num_attention_heads=2,
    )
    return _hub().MobileViTModel(config), {"pixel_values": torch.randn(1, 3, 64, 64)}


MODELS = [bert, gpt2, vit, t5_encoder, llama, whisper_encoder, convnext, swin, mobilevit]


def _check(want: Any, mod: Any, params: Any, inputs: Any) -> None:
    got = torch_cases.run_compiled(mod, params, inputs)
    wrong = [torch_cases.difference(a, b) for a, b in zip(want, got, strict=True)]
    assert want and not any(wrong), wrong


@pytest.mark.parametrize("make", MODELS, ids=lambda f: f.__name__)
def test_exported_model_agrees_with_eager(make: Callable[[], Any]) -> None:
    torch.manual_seed(0)
    model, inputs = make()
    model.eval()
    with torch.no_grad():
        want = torch_cases.tensors(model(**inputs))
    mod, params = relay.frontend.from_exported_program(torch.export.export(model, (), inputs, strict=False))
    names = {name for name, _ in model.named_parameters()}
    assert set(params) & names, "parameters keep their names"
    _check(want, mod, params, inputs.values())


@pytest.mark.parametrize("make", [bert, convnext, gpt2], ids=lambda f: f.__name__)
def test_traced_model_agrees_with_eager(make: Callable[[], Any]) -> None:
    torch.manual_seed(0)
    model, inputs = make()
    model.eval()
    given = tuple(inputs.values())
    with torch.no_grad():
        want = torch_cases.tensors(model(**inputs))
        traced = torch.jit.trace(_Named(model, list(inputs)), given, strict=False, check_trace=False)
    mod, params = relay.frontend.from_pytorch(traced, torch_cases.describe(given))
    _check(want, mod, params, given)


class _Named(torch.nn.Module):
    """A model that takes by place what it wants by name, and returns its tensors only."""

    def __init__(self, model: Any, names: list[str]) -> None:
        super().__init__()
        self.model, self.names = model, names

    def forward(self, *inputs: Any) -> Any:
        return tuple(torch_cases.tensors(self.model(**dict(zip(self.names, inputs, strict=True)))))
