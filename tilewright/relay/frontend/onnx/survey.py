"""Checks before the import: the order of the nodes, and one error for all unsupported operators."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ....ir.errors import FrontendError
from .bodies import has_body
from .context import find_converter

if TYPE_CHECKING:
    from .importer import Importer

DEEPEST = 64  # how deep functions and graphs within graphs may nest
MOST_NODES = 250_000  # most nodes of a model with its functions inlined and loops unrolled


def ordered(nodes: Sequence[Any], scope: Mapping[str, Any], where: str) -> list[Any]:
    """The nodes in topological order. ONNX requires this order, but not all exporters follow it."""
    made: dict[str, int] = {}
    for i, node in enumerate(nodes):
        for name in node.output:
            if name and name in made:
                raise FrontendError(
                    f"{where}: two nodes write {name!r}: {_show(nodes[made[name]])} and {_show(node)}"
                )
            if name:
                made[name] = i
    waits = [{made[name] for name in names_read(node) if name in made} for node in nodes]
    if all(d < i for i, found in enumerate(waits) for d in found):
        return list(nodes)
    readers: dict[int, list[int]] = {}
    for i, found in enumerate(waits):
        for d in found:
            readers.setdefault(d, []).append(i)
    ready = [i for i, found in enumerate(waits) if not found]
    out: list[Any] = []
    while ready:
        at = ready.pop(0)
        out.append(nodes[at])
        for i in readers.get(at, ()):
            waits[i].discard(at)
            if not waits[i]:
                ready.append(i)
    if len(out) != len(nodes):
        stuck = [_show(nodes[i]) for i, found in enumerate(waits) if found]
        shown = ", ".join(stuck[:5]) + (f" and {len(stuck) - 5} more" if len(stuck) > 5 else "")
        raise FrontendError(f"{where}: the graph has a cycle through {shown}")
    return out


def names_read(node: Any) -> Iterator[str]:
    """The names a node reads, those that graphs within it take from outside as well."""
    stack, inside = [node], set()
    reads: dict[str, None] = dict.fromkeys(node.input)
    while stack:
        for a in stack.pop().attribute:
            for graph in [a.g] if a.HasField("g") else a.graphs:
                for at in graph.node:
                    stack.append(at)
                    reads.update(dict.fromkeys(at.input))
                    inside.update(at.output)
                reads.update((o.name, None) for o in graph.output)
    own = set(node.input)
    yield from (name for name in reads if name and (name in own or name not in inside))


def _show(node: Any) -> str:
    return f"{node.op_type} {node.name!r}" if node.name else f"{node.op_type} -> {', '.join(node.output)}"


def _check_text(things: Sequence[Any], name: str) -> None:
    """Refuse names that are not text: protobuf returns bytes for invalid UTF-8."""
    for t in things:
        words = [
            t.name,
            getattr(t, "op_type", ""),
            getattr(t, "domain", ""),
            *getattr(t, "input", ()),
            *getattr(t, "output", ()),
        ]
        if not all(isinstance(w, str) for w in words):
            raise FrontendError(
                f"{name}: is damaged: {next(w for w in words if not isinstance(w, str))!r} is not text"
            )


def refuse_missing(importer: Importer) -> None:
    """One error for all nodes of the model without a converter."""
    missing: dict[str, list[str]] = {}
    seen: set[tuple[str, str]] = set()
    graph = importer.model.graph
    work: list[tuple[str, Any, Any]] = [("", graph.node, importer.opsets)]
    _check_text([*graph.input, *graph.output, *graph.initializer], importer.name)
    while work:
        place, nodes, opsets = work.pop()
        _check_text(nodes, importer.name)
        for node in nodes:
            domain = "" if node.domain == "ai.onnx" else node.domain
            key = (domain, node.op_type)
            local = importer.functions.get(key)
            if local is not None:
                if key not in seen:
                    seen.add(key)
                    inner = {"" if o.domain == "ai.onnx" else o.domain: o.version for o in local.opset_import}
                    work.append((f"function {local.name}", local.node, inner or opsets))
            elif find_converter(domain, node.op_type, opsets.get(domain, 1)) is None:
                if not has_body(domain, node.op_type, opsets.get(domain, 1)):
                    label = f"{domain}.{node.op_type}" if domain else node.op_type
                    at = node.name or (node.output[0] if node.output else "?")
                    missing.setdefault(label, []).append(f"{at!r}" + (f" in {place}" if place else ""))
            for a in node.attribute:
                for g in [a.g] if a.HasField("g") else a.graphs:
                    _check_text([*g.input, *g.output, *g.initializer], importer.name)
                    work.append((f"graph {g.name!r}", g.node, opsets))
    if not missing:
        return
    total = sum(map(len, missing.values()))
    lines = []
    for label, places in sorted(missing.items()):
        counts = Counter(places)
        shown = ", ".join(list(counts)[:4]) + (f" and {len(places) - 4} more" if len(places) > 4 else "")
        lines.append(f"  {label} x{len(places)}: {shown}")
    raise FrontendError(
        f"{importer.name}: {total} node{'s' if total > 1 else ''} of {len(missing)} "
        f"operator{'s' if len(missing) > 1 else ''} cannot be imported (opset {importer.opsets.get('', 1)}):\n"
        + "\n".join(lines)
    )


def refuse_endless(importer: Importer) -> None:
    """Refuse a model that is exponentially large with its functions inlined."""
    functions = importer.functions
    if not functions:
        return
    sizes, calls = {}, {}
    for key, nodes in [(None, importer.model.graph.node), *((k, f.node) for k, f in functions.items())]:
        every = list(_nodes_of(nodes))
        sizes[key] = len(every)
        names = [("" if n.domain == "ai.onnx" else n.domain, n.op_type) for n in every]
        calls[key] = [name for name in names if name in functions]
    total = dict(sizes)
    for _ in range(DEEPEST):
        longer = {k: sizes[k] + sum(total[c] for c in found) for k, found in calls.items()}
        if longer == total:
            break
        total = {k: min(v, 10 * MOST_NODES) for k, v in longer.items()}
    if total[None] > MOST_NODES:
        raise FrontendError(
            f"{importer.name}: the functions of the model call each other so often that it has more than "
            f"{MOST_NODES} nodes when they are inlined"
        )


def _nodes_of(nodes: Sequence[Any]) -> Iterator[Any]:
    """Nodes, with those of the graphs within them."""
    stack = list(nodes)
    while stack:
        at = stack.pop()
        yield at
        for a in at.attribute:
            for graph in [a.g] if a.HasField("g") else a.graphs:
                stack += graph.node
