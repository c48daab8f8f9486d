"""Language models generate text token by token: a network like GPT-2 and one like Llama.

Both are written here in plain PyTorch, with random weights. The prompt is read in one call (prefill); then each step
takes one token and the keys and values of the past, which `Decoder` keeps in KV caches and writes in place. The tokens
are those of PyTorch; the tokens per second stand beside PyTorch's, and onnxruntime's if it is installed.

`--checkpoint DIR` generates text with a model and a tokenizer of Hugging Face's from a local folder instead; this needs
the package transformers.
"""

from __future__ import annotations

import argparse
import importlib.util
import io
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

import tilewright
from tilewright.model.decoding import Decoder

Past = Sequence[
    tuple[torch.Tensor, torch.Tensor]
]  # keys and values of each layer: (1, heads, past, width of a head)


# ---------------------------------------------------------------------------- two networks
def attend(q: Any, k: Any, v: Any, past: Any, shared: int = 1) -> tuple[Any, Any]:
    """Attention over the past and the new tokens, by which the past is extended."""
    k, v = torch.cat([past[0], k], 2), torch.cat([past[1], v], 2)
    present = k, v
    grouped = shared > 1  # heads that share keys and values, which the exporter to ONNX does not know
    if grouped and torch.onnx.is_in_onnx_export():
        k, v = (e.unsqueeze(2).expand(-1, -1, shared, -1, -1).flatten(1, 2) for e in (k, v))
        grouped = False
    found = F.scaled_dot_product_attention(q, k, v, is_causal=bool(q.shape[2] > 1), enable_gqa=grouped)
    return found.transpose(1, 2).flatten(2), present


def heads(x: Any, width: int) -> Any:
    return x.unflatten(-1, (-1, width)).transpose(1, 2)


class GPTBlock(nn.Module):
    def __init__(self, width: int, head: int) -> None:
        super().__init__()
        self.head, self.first, self.second = head, nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Any, past: Any) -> tuple[Any, Any]:
        q, k, v = (heads(e, self.head) for e in self.qkv(self.first(x)).chunk(3, -1))
        found, present = attend(q, k, v, past)
        x = x + self.out(found)
        return x + self.down(F.gelu(self.up(self.second(x)), approximate="tanh")), present


class GPT(nn.Module):
    """A network like GPT-2: learned positions, layer norms, GELU, the embedding used again for the scores."""

    def __init__(self, width: int, layers: int, head: int, vocabulary: int, length: int) -> None:
        super().__init__()
        self.cache = (width // head, head)
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(GPTBlock(width, head) for _ in range(layers))
        self.norm = nn.LayerNorm(width)

    def forward(self, ids: Any, past: Past) -> tuple[Any, list[Any]]:
        start = past[0][0].shape[2]
        x = self.tokens(ids) + self.positions(torch.arange(start, start + ids.shape[1]))
        presents = []
        for block, own in zip(self.blocks, past):
            x, present = block(x, own)
            presents.append(present)
        return F.linear(self.norm(x[:, -1]), self.tokens.weight), presents


class RMSNorm(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Any) -> Any:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.weight


def rotated(x: Any, cos: Any, sin: Any) -> Any:
    a, b = x.chunk(2, -1)
    return x * cos + torch.cat([-b, a], -1) * sin


class LlamaBlock(nn.Module):
    def __init__(self, width: int, head: int, shared: int) -> None:
        super().__init__()
        self.head, self.shared = head, shared
        self.first, self.second = RMSNorm(width), RMSNorm(width)
        self.q, self.out = nn.Linear(width, width, False), nn.Linear(width, width, False)
        self.k, self.v = nn.Linear(width, width // shared, False), nn.Linear(width, width // shared, False)
        self.gate, self.up = nn.Linear(width, 3 * width, False), nn.Linear(width, 3 * width, False)
        self.down = nn.Linear(3 * width, width, False)

    def forward(self, x: Any, past: Any, cos: Any, sin: Any) -> tuple[Any, Any]:
        h = self.first(x)
        q, k, v = (heads(layer(h), self.head) for layer in (self.q, self.k, self.v))
        found, present = attend(rotated(q, cos, sin), rotated(k, cos, sin), v, past, self.shared)
        x = x + self.out(found)
        h = self.second(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h)), present


class Llama(nn.Module):
    """A network like Llama: rotary embeddings, RMS norms, gated layers; several heads share keys and values."""

    def __init__(
        self, width: int, layers: int, head: int, vocabulary: int, length: int, shared: int = 2
    ) -> None:
        super().__init__()
        self.cache = (width // head // shared, head)
        self.tokens, self.scores = nn.Embedding(vocabulary, width), nn.Linear(width, vocabulary, False)
        self.blocks = nn.ModuleList(LlamaBlock(width, head, shared) for _ in range(layers))
        self.norm = RMSNorm(width)
        angles = torch.outer(torch.arange(length), 1e4 ** (-torch.arange(0, head, 2) / head)).repeat(1, 2)
        self.register_buffer("cos", angles.cos())
        self.register_buffer("sin", angles.sin())

    def forward(self, ids: Any, past: Past) -> tuple[Any, list[Any]]:
        start = past[0][0].shape[2]
        places = torch.arange(start, start + ids.shape[1])
        cos, sin = self.cos[places], self.sin[places]
        x = self.tokens(ids)
        presents = []
        for block, own in zip(self.blocks, past):
            x, present = block(x, own, cos, sin)
            presents.append(present)
        return self.scores(self.norm(x[:, -1])), presents


class Pretrained(nn.Module):
    """A model of transformers, called as the networks above are."""

    def __init__(self, folder: Path) -> None:
        from transformers import AutoModelForCausalLM

        super().__init__()
        self.model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
        config = self.model.config
        width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        self.cache = (getattr(config, "num_key_value_heads", None) or config.num_attention_heads, width)
        self.blocks = range(config.num_hidden_layers)

    def forward(self, ids: Any, past: Past) -> tuple[Any, list[Any]]:
        from transformers.cache_utils import DynamicCache, DynamicLayer

        cache = DynamicCache()
        for keys, values in past:
            layer = DynamicLayer()
            layer.lazy_initialization(keys, values)
            layer.keys, layer.values = keys, values
            cache.layers.append(layer)
        made = self.model(ids, past_key_values=cache, use_cache=True)
        return made.logits[:, -1], [(layer.keys, layer.values) for layer in cache.layers]


# ---------------------------------------------------------------------------- generation
def past_of(net: Any, rows: int) -> list[Any]:
    shape = (1, net.cache[0], rows, net.cache[1])
    return [(torch.zeros(shape), torch.zeros(shape)) for _ in net.blocks]


class Prefill(nn.Module):
    """The network for a prompt: there is no past."""

    def __init__(self, net: Any) -> None:
        super().__init__()
        self.net = net

    def forward(self, ids: Any) -> tuple[Any, list[Any]]:
        return self.net(ids, past_of(self.net, 0))


def exported(net: Any) -> Any:
    """A step of the network, whose past has a dynamic length."""
    n = torch.export.Dim.AUTO
    shapes = (None, [({2: n}, {2: n}) for _ in net.blocks])
    return torch.export.export(
        net, (torch.zeros(1, 1, dtype=torch.int64), past_of(net, 8)), dynamic_shapes=shapes
    )


Step = Callable[[Any], Any]  # scores of the next token, for a token


def generated(prefill: Callable[[Any], Any], started: Callable[[Any], Step], prompt: Any, count: int) -> Any:
    """(the tokens, seconds of the prompt, seconds of a step): always the likeliest token."""
    begin = time.perf_counter()
    scores, past = prefill(prompt)
    read = time.perf_counter() - begin
    step = started(past)
    tokens, times = [int(scores.argmax())], []
    for _ in range(count - 1):
        token = torch.tensor([[tokens[-1]]])
        begin = time.perf_counter()
        scores = step(token)
        times.append(time.perf_counter() - begin)
        tokens.append(int(scores.argmax()))
    return tokens, read, float(np.median(times))


def by_torch(net: Any) -> Any:
    def started(past: Any) -> Step:
        held = [past]

        def step(token: Any) -> Any:
            scores, held[0] = net(token, held[0])
            return scores

        return step

    return Prefill(net), started


def by_tilewright(net: Any, prompt: Any, room: int) -> Any:
    prefill = tilewright.compile(Prefill(net), prompt)
    decoder = Decoder(exported(net), max_length=room)

    def started(past: Any) -> Step:
        decoder.start([e for layer in past for e in layer])
        return decoder

    return prefill, started


def by_onnxruntime(net: Any, threads: int = 0) -> Any:
    """A step in onnxruntime, with the past as inputs and outputs; PyTorch reads the prompt."""
    import onnxruntime

    file = io.BytesIO()
    layers = range(len(net.blocks))
    pasts = [f"past_{i}_{kind}" for i in layers for kind in "kv"]
    presents = [f"present_{i}_{kind}" for i in layers for kind in "kv"]
    torch.onnx.export(
        net,
        (torch.zeros(1, 1, dtype=torch.int64), past_of(net, 8)),
        file,
        input_names=["ids", *pasts],
        output_names=["scores", *presents],
        dynamic_axes={name: {2: "past"} for name in pasts} | {name: {2: "all"} for name in presents},
        opset_version=17,
        dynamo=False,
    )
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads  # 0: as many as it thinks right
    session = onnxruntime.InferenceSession(file.getvalue(), options, providers=["CPUExecutionProvider"])

    def started(past: Any) -> Step:
        held = [e.numpy() for layer in past for e in layer]

        def step(token: Any) -> Any:
            scores, *held[:] = session.run(None, {"ids": token.numpy()} | dict(zip(pasts, held)))
            return scores

        return step

    return Prefill(net), started


def shown(name: str, net: Any, prompt: Any, count: int, peers: bool) -> list[int]:
    """Generate with every engine, and print the speeds."""
    weights = sum(p.numel() for p in net.parameters())
    print(
        f"{name}: {weights / 1e6:.1f} million weights, {prompt.shape[1]} tokens of prompt, {count} generated"
    )
    begin = time.perf_counter()
    engines = {"tilewright": by_tilewright(net, prompt, prompt.shape[1] + count)}
    print(f"  compiled in {time.perf_counter() - begin:.1f} s")
    engines["PyTorch"] = by_torch(net)
    if peers and importlib.util.find_spec("onnxruntime"):
        try:
            engines["onnxruntime"] = by_onnxruntime(net)
        except Exception as error:  # its exporter does not take every network
            print(f"  onnxruntime: the network cannot be exported: {str(error).splitlines()[0]}")
    results = {}
    for engine, made in engines.items():
        generated(*made, prompt, 3)  # memory and caches are warm afterwards
        results[engine] = generated(*made, prompt, count)
        _, read, each = results[engine]
        note = " (PyTorch reads the prompt)" if engine == "onnxruntime" else ""
        print(f"  {engine:12} prompt {1e3 * read:7.1f} ms   decode {1 / each:7.1f} tokens/s{note}")
    tokens: list[int] = results["tilewright"][0]
    for engine, (other, _, _) in results.items():
        same = next((i for i, (a, b) in enumerate(zip(tokens, other)) if a != b), count)
        if engine != "tilewright":
            print(
                f"  the tokens of {engine} are the same"
                if same == count
                else f"  {engine} differs from token {same} on"
            )
    return tokens


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--width", type=int, default=256, help="width of the networks (GPT-2 small has 768)")
    parser.add_argument("--layers", type=int, default=4, help="layers of the networks (GPT-2 small has 12)")
    parser.add_argument("--vocabulary", type=int, default=8192, help="number of tokens (GPT-2 has 50257)")
    parser.add_argument("--prompt", type=int, default=24, help="tokens of the prompt")
    parser.add_argument("--tokens", type=int, default=48, help="tokens to generate")
    parser.add_argument("--only", choices=("gpt", "llama"), help="one of the two networks")
    parser.add_argument("--alone", action="store_true", help="without onnxruntime")
    parser.add_argument(
        "--checkpoint", type=Path, help="a folder with a model and a tokenizer of Hugging Face's"
    )
    parser.add_argument("--text", default="The compiler", help="the prompt for a checkpoint")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.manual_seed(0)
    if args.checkpoint is not None:
        if importlib.util.find_spec("transformers") is None:
            sys.exit("--checkpoint needs the package transformers: pip install transformers")
        from transformers import AutoTokenizer

        tokenizer = AutoTokenizer.from_pretrained(args.checkpoint)
        prompt = torch.tensor([tokenizer(args.text)["input_ids"]])
        with torch.no_grad():
            tokens = shown(
                args.checkpoint.name, Pretrained(args.checkpoint).eval(), prompt, args.tokens, False
            )
        print(args.text + tokenizer.decode(tokens))
        return 0
    for kind, build in (("gpt", GPT), ("llama", Llama)):
        if args.only in (None, kind):
            head = 64 if args.width % 128 == 0 else args.width // 4
            net = build(args.width, args.layers, head, args.vocabulary, args.prompt + args.tokens).eval()
            prompt = torch.randint(0, args.vocabulary, (1, args.prompt))
            with torch.no_grad():
                shown(f"a network like {build.__name__}", net, prompt, args.tokens, not args.alone)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
