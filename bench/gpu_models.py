"""ResNet-50 and BERT on a CUDA GPU: tilewright's automatic schedules (zero trials) beside PyTorch, eager and compiled.

    python bench/gpu_models.py                        float32 and float16, batches of 1 and 16 (BERT: 1 and 8)
    python bench/gpu_models.py --only "f16 16"        those with this text in their name
    python bench/gpu_models.py --no-compile           without torch.compile
    python bench/gpu_models.py --layout NHWC          tilewright's convolutions with channels last
    python bench/gpu_models.py --tf32                 everybody's float32 with tf32, as PyTorch's is by default
    python bench/gpu_models.py --profile 10           the ten longest steps of each as well

All run as graphs of launches over the same image and the same weights, in turn, for some rounds; the median counts. The
error is the greatest difference from PyTorch in float64, as a part of the greatest value. The ratio is the peer's time
over tilewright's: above 1, tilewright is faster.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

import tilewright as tvm
from tilewright import relay
from tilewright.contrib.debugger.debug_executor import GraphModuleDebug
from tilewright.contrib.graph_executor import GraphModule

ROUNDS, RUNS = 7, 20


def resnet50() -> Any:
    """The network of He et al. with strides in the middle of a block, weights from a fixed seed."""
    import torch
    from torch import nn

    class Block(nn.Module):
        def __init__(self, cin: int, mid: int, stride: int) -> None:
            super().__init__()
            out = 4 * mid
            self.body = nn.Sequential(
                nn.Conv2d(cin, mid, 1, bias=False),
                nn.BatchNorm2d(mid),
                nn.ReLU(),
                nn.Conv2d(mid, mid, 3, stride, 1, bias=False),
                nn.BatchNorm2d(mid),
                nn.ReLU(),
                nn.Conv2d(mid, out, 1, bias=False),
                nn.BatchNorm2d(out),
            )
            same = stride == 1 and cin == out
            self.side = (
                nn.Identity()
                if same
                else nn.Sequential(nn.Conv2d(cin, out, 1, stride, bias=False), nn.BatchNorm2d(out))
            )

        def forward(self, x: Any) -> Any:
            return torch.relu(self.body(x) + self.side(x))

    torch.manual_seed(0)
    layers: list[Any] = [
        nn.Conv2d(3, 64, 7, 2, 3, bias=False),
        nn.BatchNorm2d(64),
        nn.ReLU(),
        nn.MaxPool2d(3, 2, 1),
    ]
    cin = 64
    for mid, count, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for i in range(count):
            layers.append(Block(cin, mid, stride if i == 0 else 1))
            cin = 4 * mid
    net = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(cin, 1000))
    return net.eval()


def bert_base() -> Any:
    """The encoder of Devlin et al.: 12 layers of 12 heads, from ids of words to their last states."""
    import torch
    from torch import nn
    from torch.nn import functional as F

    width, heads, words, length = 768, 12, 30522, 512

    class Layer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.query, self.key, self.value, self.mix = (nn.Linear(width, width) for _ in range(4))
            self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
            self.norms = nn.ModuleList(nn.LayerNorm(width, eps=1e-12) for _ in range(2))

        def forward(self, x: Any) -> Any:
            batch, count, _ = x.shape
            parts = [
                f(x).view(batch, count, heads, width // heads).transpose(1, 2)
                for f in (self.query, self.key, self.value)
            ]
            seen = F.scaled_dot_product_attention(*parts).transpose(1, 2).reshape(batch, count, width)
            x = self.norms[0](x + self.mix(seen))
            return self.norms[1](x + self.narrow(F.gelu(self.wide(x))))

    class Bert(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words, self.places = nn.Embedding(words, width), nn.Embedding(length, width)
            self.norm = nn.LayerNorm(width, eps=1e-12)
            self.layers = nn.ModuleList(Layer() for _ in range(12))

        def forward(self, ids: Any) -> Any:
            x = self.norm(self.words(ids) + self.places.weight[: ids.shape[1]])
            for layer in self.layers:
                x = layer(x)
            return x

    torch.manual_seed(0)
    return Bert().eval()


def module_of(net: Any, x: Any, half: bool, layout: str) -> tuple[Any, Any]:
    """The network for tilewright; in float16 its input stays as it is.

    Normalisations of images are folded into the weights first: casts would stand between them.
    """
    import torch

    traced = torch.jit.trace(net, x.cpu())
    given = [("x", (tuple(x.shape), str(x.dtype).removeprefix("torch.")))]
    mod, params = relay.frontend.from_pytorch(traced, given)
    if layout != "NCHW":
        mod = relay.transform.ConvertLayout({"nn.conv2d": [layout, "default"]})(mod)
    if half and x.is_floating_point():
        with tvm.transform.PassContext(opt_level=3):
            mod, params = relay.optimize(mod, "llvm", params)
    if half:
        mod = relay.transform.ToMixedPrecision("float16")(mod)
    return mod, params


def recorded(run: Callable[[], Any]) -> Callable[[], Any]:
    """What torch launches, as one graph."""
    import torch

    for _ in range(3):
        run()
    torch.cuda.synchronize()
    held = torch.cuda.CUDAGraph()
    with torch.cuda.graph(held):
        run()
    return held.replay


def seconds(run: Callable[[], Any]) -> float:
    import torch

    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    for _ in range(RUNS):
        run()
    end.record()
    torch.cuda.synchronize()
    return float(begin.elapsed_time(end)) * 1e-3 / RUNS


def measure(name: str, net_of: Callable[[], Any], x: Any, half: bool, options: Any) -> dict[str, Any]:
    import torch

    net = net_of()
    want = net_of().double().cuda()(x.double() if x.is_floating_point() else x).detach()
    start = time.perf_counter()
    mod, params = module_of(net, x, half, options.layout)
    with warnings.catch_warnings(record=True) as told, tvm.transform.PassContext(opt_level=3):
        warnings.simplefilter("always", RuntimeWarning)
        lib = relay.build(mod, "cuda -tf32" if options.tf32 else "cuda", params=params)
    built = time.perf_counter()
    ours = GraphModule(lib["default"](tvm.cuda(0)))
    ours.set_input_zero_copy("x", tvm.nd.from_dlpack(x))
    ours.run()  # compiled, loaded, and recorded
    ours.run()
    error = _error(torch.from_dlpack(ours.get_output(0)), want)
    first = time.perf_counter()
    theirs = net.cuda().half() if half else net.cuda()
    given = x.half() if half and x.is_floating_point() else x
    if half and x.dim() == 4:
        theirs, given = (
            theirs.to(memory_format=torch.channels_last),
            given.to(memory_format=torch.channels_last),
        )
    peers: dict[str, Callable[[], Any]] = {"tilewright": ours.run}
    with torch.no_grad():
        peers["torch"] = recorded(lambda: theirs(given))
        if options.compile:
            made = torch.compile(theirs)
            peers["torch.compile"] = recorded(lambda: made(given))
    times: dict[str, list[float]] = {peer: [] for peer in peers}
    for _ in range(ROUNDS):
        for peer, run in peers.items():
            times[peer].append(seconds(run))
    if options.profile:
        rows = sorted(GraphModuleDebug(ours.module).profile(number=5).kernels, key=lambda r: -r.seconds)
        for r in rows[: options.profile]:
            print(f"  {r.seconds * 1e6:9.1f} us  {r.name}  {r.shapes}")
    return {
        "workload": name,
        "error": error,
        "torch error": _error(theirs(given), want),
        "build s": built - start,
        "first run s": first - built,
        "on the host": [str(w.message).splitlines()[0] for w in told],
        **{peer: statistics.median(t) for peer, t in times.items()},
    }


def _error(found: Any, want: Any) -> float:
    return float((found.detach().double() - want).abs().max() / want.abs().max())


def workloads() -> list[tuple[str, Callable[[], Any], tuple[int, ...], bool]]:
    """Names, networks, the shapes of images or of ids of words, and whether it is in float16."""
    images = [(batch, 3, 224, 224) for batch in (1, 16)]
    rows = [
        (f"ResNet-50 {'f16' if half else 'f32'} {s[0]}", resnet50, s, half)
        for half in (False, True)
        for s in images
    ]
    return [*rows, *((f"BERT f16 {batch}x128", bert_base, (batch, 128), True) for batch in (1, 8))]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="", help="a text that a workload's name must have")
    parser.add_argument("--no-compile", dest="compile", action="store_false", help="leave torch.compile out")
    parser.add_argument(
        "--layout", default="NCHW", choices=("NCHW", "NHWC"), help="of tilewright's convolutions"
    )
    parser.add_argument(
        "--tf32", action="store_true", help="let the factors of float32 products be rounded to 10 bits"
    )
    parser.add_argument("--profile", type=int, default=0, help="how many of the longest steps to print")
    parser.add_argument("--json", default="", help="a file for everything that was measured")
    options = parser.parse_args()
    import torch

    if not torch.cuda.is_available():
        print("there is no CUDA device here", file=sys.stderr)
        return 1
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = options.tf32
    print(torch.cuda.get_device_name(0))
    rows = []
    for name, net_of, shape, half in workloads():
        if options.only in name:
            x = torch.randint(30522, shape) if len(shape) == 2 else torch.randn(shape)
            row = measure(name, net_of, x.cuda(), half, options)
            rows.append(row)
            told = [
                f"{p} {row[p] * 1e3:.3f} ms ({row[p] / row['tilewright']:.2f})"
                for p in row
                if "torch" in p[:5] and "error" not in p
            ]
            print(
                f"{name}: tilewright {row['tilewright'] * 1e3:.3f} ms, {', '.join(told)}, error {row['error']:.0e} "
                f"(torch {row['torch error']:.0e}), built in {row['build s']:.1f} s"
            )
            for text in row["on the host"]:
                print(f"  {text}")
    if options.json:
        with open(options.json, "w") as file:
            json.dump(rows, file, indent=1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
