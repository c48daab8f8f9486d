"""Phase 4: a model comes in as a graph, and passes over the graph do what no single operator could."""

from __future__ import annotations

import importlib.util
import json
import math
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

import tilewright as tvm
from tilewright import relay
from tilewright.contrib import graph_executor

from . import kit
from .kit import Figures, Page

NUMBER = 4
TITLE = "a model through relay"
QUESTION = "What do passes over the graph do that a schedule of one operator cannot?"

# Passes that are switched off one at a time, and what each is there for.
PASSES = {
    "FuseOps": "operators that one loop nest can compute become one kernel",
    "SimplifyInference": "batch norms become a multiplication and an addition, dropout nothing",
    "FoldConstant": "what depends on weights alone is computed when it is compiled",
    "FoldScaleAxis": "multiplications of channels go into the weights of the convolution before",
    "EliminateCommonSubexpr": "what is computed twice is computed once",
    "SimplifyExpr": "pairs of operators that undo each other go",
}
FEW = ("FuseOps", "SimplifyInference")  # those of the quick mode


# -- the model -----------------------------------------------------------------------------------
def torch_network(channels: int) -> Any:
    """Convolutions with batch norms and GELU, then an MLP: the sort of thing that trains in PyTorch."""
    from torch import nn

    def block(inputs: int) -> list[Any]:
        return [nn.Conv2d(inputs, channels, 3, padding=1), nn.BatchNorm2d(channels), nn.GELU()]

    head = [
        nn.AdaptiveAvgPool2d(4),
        nn.Flatten(),
        nn.Linear(16 * channels, 64),
        nn.ReLU(),
        nn.Dropout(),
        nn.Linear(64, 10),
    ]
    return nn.Sequential(*block(3), *block(channels), *block(channels), *head).eval()


def from_torch(pixels: int, channels: int) -> tuple[Any, dict[str, Any], Any, Any]:
    """The module, its weights, an input, and what PyTorch makes of it."""
    import torch

    torch.manual_seed(0)
    net, image = torch_network(channels), torch.randn(1, 3, pixels, pixels)
    with torch.no_grad():
        traced = torch.jit.trace(net, image)
        want = net(image).numpy()
    mod, params = relay.frontend.from_pytorch(traced, [("image", tuple(image.shape))])
    return mod, params, image.numpy(), want


def from_relay(pixels: int, channels: int) -> tuple[Any, dict[str, Any], Any, Any]:
    """The same network in relay, where there is no PyTorch; the reference is then the graph as it is, with no pass."""
    rng = np.random.default_rng(0)
    params: dict[str, Any] = {}

    def weight(name: str, shape: Sequence[int]) -> Any:
        params[name] = (rng.standard_normal(shape) / math.sqrt(np.prod(shape[1:]) or 1)).astype("float32")
        return relay.var(name, shape=tuple(shape))

    image = relay.var("image", shape=(1, 3, pixels, pixels))
    y, inputs = image, 3
    for i in range(3):
        y = relay.nn.conv2d(y, weight(f"w{i}", (channels, inputs, 3, 3)), padding=(1, 1))
        y = relay.nn.bias_add(y, weight(f"b{i}", (channels,)))
        norm = [weight(f"{name}{i}", (channels,)) for name in ("gamma", "beta", "mean", "var")]
        params[f"var{i}"] = np.abs(params[f"var{i}"]) + 1
        y = relay.nn.batch_norm(y, *norm)[0]
        half, root = relay.const(0.5), relay.const(math.sqrt(0.5))
        y = y * half * (relay.erf(y * root) + relay.const(1.0))
        inputs = channels
    y = relay.nn.batch_flatten(relay.nn.adaptive_avg_pool2d(y, (4, 4)))
    y = relay.nn.dropout(relay.nn.relu(relay.nn.dense(y, weight("d0", (64, 16 * channels)))))
    y = relay.nn.dense(y, weight("d1", (10, 64)))
    mod = tvm.IRModule.from_expr(relay.Function(relay.analysis.free_vars(y), y))
    data = rng.standard_normal((1, 3, pixels, pixels)).astype("float32")
    return mod, params, data, _run(compiled(mod, params, level=0), data)


# -- compiling and counting ----------------------------------------------------------------------
def compiled(mod: Any, params: dict[str, Any], off: Sequence[str] = (), level: int = 3) -> Any:
    with tvm.transform.PassContext(opt_level=level, disabled_pass=list(off)):
        return relay.build(mod, target="llvm", params=params)


def _executor(lib: Any, data: Any) -> Any:
    model = graph_executor.GraphModule(lib["default"](tvm.cpu()))
    model.set_input("image", data)
    model.run()
    return model


def _run(lib: Any, data: Any) -> Any:
    return _executor(lib, data).get_output(0).numpy()


def counted(lib: Any) -> Figures:
    """How many kernels a model has, and how many bytes pass between them in a run."""
    graph = json.loads(lib.get_graph_json())
    shapes, kinds = graph["attrs"]["shape"][1], graph["attrs"].get("dltype", [None, []])[1]
    first = graph["node_row_ptr"]
    moved = kernels = 0
    for i, node in enumerate(graph["nodes"]):
        if node["op"] == "null":
            continue
        kernels += 1
        for entry in range(first[i], first[i + 1]):
            bits = tvm.DataType(kinds[entry]).bits if kinds else 32
            moved += math.prod(shapes[entry]) * bits // 8
    report = lib.memory_report()
    return {"kernels": kernels, "written": moved, "arena": report.arena, "weights": report.weights}


def measure(quick: bool) -> Figures:
    pixels, channels = (16, 8) if quick else (56, 32)
    has_torch = importlib.util.find_spec("torch") is not None
    mod, params, data, want = (from_torch if has_torch else from_relay)(pixels, channels)
    variants: dict[str, tuple[Sequence[str], int]] = {"all passes": ((), 3)}
    variants |= {f"without {p}": ((p,), 3) for p in (FEW if quick else PASSES)}
    variants["no passes"] = ((), 0)
    rows, runs = [], {}
    for name, (off, level) in variants.items():
        lib = compiled(mod, params, off, level)
        model = _executor(lib, data)
        runs[name] = model.run
        error = float(np.max(np.abs(model.get_output(0).numpy() - want)))
        rows.append({"name": name, "off": list(off), "error": error, **counted(lib)})
    times = kit.in_turns(runs, 5 if quick else 21)
    with tvm.transform.PassContext(opt_level=3):
        after, _ = relay.optimize(mod, target="llvm", params=params)
    return {
        "from": "PyTorch" if has_torch else "relay",
        "shape": [1, 3, pixels, pixels],
        "operators": dict(relay.analysis.list_op_freqs(mod)),
        "after": dict(relay.analysis.list_op_freqs(after)),
        "variants": [{**row, **times[row["name"]]} for row in rows],
    }


def report(figures: Figures, page: Page) -> None:
    before, after = figures["operators"], figures["after"]
    names = sorted({*before, *after}, key=lambda name: (-before.get(name, 0), name))
    page.table(
        f"A network from {figures['from']}, images of {figures['shape'][2]} × {figures['shape'][3]}: its operators",
        ["operator", "as imported", "after the passes"],
        [[name, before.get(name, ""), after.get(name, "")] for name in names],
    )
    page.table(
        "What became of it, with all passes and with one of them switched off",
        ["", "kernels", "written", "arena", "time", ""],
        [
            [
                row["name"].replace("without ", "− "),
                row["kernels"],
                kit.size(row["written"]),
                kit.size(row["arena"]),
                kit.seconds(row["seconds"]),
                kit.bar(row["seconds"], max(r["seconds"] for r in figures["variants"]), 6),
            ]
            for row in figures["variants"]
        ],
        best=0,
        left=(0, 5),
    )
    page.text(
        "Written is what all kernels write in a run; arena the memory that is planned for what lies between them."
    )


# -- what follows --------------------------------------------------------------------------------
def _effect(row: Figures, whole: Figures) -> str:
    """What switching a pass off did."""
    (off,) = row["off"]
    told = []
    if row["kernels"] != whole["kernels"]:
        told.append(f"{row['kernels']} kernels in place of {whole['kernels']}")
    if kit.size(row["written"]) != kit.size(whole["written"]):
        told.append(f"{kit.size(row['written'])} written in place of {kit.size(whole['written'])}")
    if row["arena"] > 1.01 * whole["arena"]:
        told.append(f"an arena of {kit.size(row['arena'])} in place of {kit.size(whole['arena'])}")
    if kit.clearly_faster(whole, row):
        told.append(f"{kit.ratio(kit.times_as_fast(whole, row))} times the time")
    elif kit.clearly_faster(row, whole):
        told.append(f"less time, by {kit.ratio(kit.times_as_fast(row, whole))} times")
    else:
        told.append("no time that could be measured")
    return f"Without {off} ({PASSES[off]}): {kit.listed(told)}."


def answer(figures: Figures) -> list[str]:
    whole, *others, none = figures["variants"]
    told = [
        f"{sum(figures['operators'].values())} operators became {whole['kernels']} kernels; with no pass there are "
        f"{none['kernels']}. A run writes {kit.size(whole['written'])} in place of {kit.size(none['written'])}, and "
        f"all passes together are {kit.verdict(whole, none)} none."
    ]
    moved = [r for r in others if r["kernels"] != whole["kernels"] or kit.clearly_faster(whole, r)]
    told += [_effect(row, whole) for row in others if row in moved or kit.clearly_faster(row, whole)]
    idle = [row["off"][0] for row in others if row not in moved and not kit.clearly_faster(row, whole)]
    if idle:
        told.append(f"Nothing that could be measured on this network came from {kit.listed(idle)}.")
    error = max(r["error"] for r in figures["variants"])
    origin = "PyTorch" if figures["from"] == "PyTorch" else "the graph with no pass"
    told.append(
        f"No version differs from {origin} by more than {error:.0e}. Each of these passes looks at several operators "
        "at once; a schedule sees one."
    )
    return told


if __name__ == "__main__":
    kit.main([sys.modules[__name__]])
