"""Profiles: the kernels of a compiled model with their times, work, source nodes, and their share of the peak.

    profile = profile_model(executor, {"data": image})
    print(profile)                               a table, the longest first
    profile.rows()                               a list of dicts; profile.to_pandas(), .csv(), .json()
    profile.save("trace.json")                   for ui.perfetto.dev and chrome://tracing; also .csv and .json

Both executors give this structure. Operations and bytes come from the model's metadata, as does the roof: the peak of
the machine that the model is compiled for.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas
    from rich.table import Table


@dataclass(frozen=True, slots=True)
class Roof:
    """The peak of a machine: multiply-adds of one core by type, and caches with the GB/s of one core and of all.

    `source` says whether the figures are measured (`tilewright calibrate`), or those of a table of processors.
    """

    name: str
    source: str
    cores: int
    gflops: Mapping[str, float]
    levels: tuple[tuple[float, float, float], ...]  # bytes, GB/s of one core, GB/s of all

    def seconds(self, flops: float, nbytes: float, dtype: str, threads: int) -> float | None:
        """The least time of a kernel: that of its arithmetic, or that of its data from the smallest cache that holds
        them, whichever is longer. None if the arithmetic of the type is not described."""
        threads = max(1, min(threads, self.cores))
        rate = self.gflops.get(dtype)
        if rate is None and flops:
            return None
        compute = flops / (rate * threads * 1e9) if rate else 0.0
        _, one, every = next(level for level in self.levels if nbytes <= level[0])
        return max(compute, nbytes / (min(one * threads, every) * 1e9))

    @property
    def text(self) -> str:
        told = {"calibrated": "measured by `tilewright calibrate`", "measured": "measured", "given": "given"}
        described = "from the table of known machines; `tilewright calibrate` measures this one"
        return f"{self.name}, {told.get(self.source, described)}"


def parse_roof(data: Any) -> Roof | None:
    """The roof in the metadata of a model."""
    if data is None:
        return None
    levels = tuple(
        (float("inf") if size is None else float(size), float(one), float(every))
        for size, one, every in data["levels"]
    )
    rates = {str(dtype): float(rate) for dtype, rate in data["gflops"].items()}
    if not levels or levels[-1][0] != float("inf") or min(min(one, every) for _, one, every in levels) <= 0:
        raise ValueError("the roof has no memory")
    return Roof(str(data["name"]), str(data["source"]), int(data["cores"]), rates, levels)


def roof_data(roof: Roof) -> dict[str, Any]:
    """A roof in the form that `parse_roof` takes."""
    levels = [[None if size == float("inf") else size, one, every] for size, one, every in roof.levels]
    return {**asdict(roof), "gflops": dict(roof.gflops), "levels": levels}


@dataclass(frozen=True, slots=True)
class KernelProfile:
    """One step of a profile. Times and work are those of all its calls in a run of the model."""

    name: str  # the step: its operators, and a number where several have the same
    kernel: str  # the symbol in the library; empty for a copy
    seconds: float
    shapes: str  # of the results
    calls: int = 1
    nodes: tuple[str, ...] = ()  # of the source: the node that takes the time, then the others
    inputs: str = ""
    dtype: str = ""  # of the arithmetic
    flops: int | None = None
    nbytes: int | None = None
    roof_seconds: float | None = None

    @property
    def node(self) -> str:
        """The node of the source that takes the time."""
        return self.nodes[0] if self.nodes else ""

    @property
    def gflops(self) -> float | None:
        """Operations in a nanosecond."""
        return None if self.flops is None or not self.seconds else self.flops / self.seconds / 1e9

    @property
    def gbytes(self) -> float | None:
        """Bytes in a nanosecond."""
        return None if self.nbytes is None or not self.seconds else self.nbytes / self.seconds / 1e9

    @property
    def roof(self) -> float | None:
        """The share of the machine's peak that it reaches, from 0 to 1."""
        return None if self.roof_seconds is None or not self.seconds else self.roof_seconds / self.seconds


@dataclass(frozen=True, slots=True)
class Profile:
    """The times of all kernels of a model, in the order of the program."""

    kernels: tuple[KernelProfile, ...]
    model: str = "model"
    device: str = "cpu"
    threads: int = 1
    roof: Roof | None = None
    run_seconds: float | None = None  # a run as a whole, without a clock between the kernels
    timeline: tuple[tuple[int, float], ...] = ()  # the calls of one run: the kernel, and its seconds

    @property
    def total(self) -> float:
        """The seconds of all kernels."""
        return sum(k.seconds for k in self.kernels)

    @property
    def call_seconds(self) -> float:
        """The approximate overhead of timing kernels one by one: the call from Python, and the clock."""
        calls = sum(k.calls for k in self.kernels)
        if self.run_seconds is None or not calls:
            return 0.0
        return max(0.0, self.total - self.run_seconds) / calls

    # -- as data ---------------------------------------------------------------------------------
    def rows(self) -> list[dict[str, Any]]:
        """One dict for each kernel, in the order of the program."""
        total = self.total or 1.0
        return [
            {
                "node": k.node,
                "nodes": list(k.nodes),
                "name": k.name,
                "kernel": k.kernel,
                "calls": k.calls,
                "seconds": k.seconds,
                "share": k.seconds / total,
                "flops": k.flops,
                "bytes": k.nbytes,
                "gflops": k.gflops,
                "gbytes": k.gbytes,
                "roof": k.roof,
                "dtype": k.dtype,
                "inputs": k.inputs,
                "results": k.shapes,
            }
            for k in self.kernels
        ]

    def to_pandas(self) -> pandas.DataFrame:
        """The rows as a DataFrame of pandas, which must be installed."""
        try:
            import pandas
        except ImportError:
            raise ImportError(
                "Profile.to_pandas() needs pandas: pip install pandas; rows() gives the same data without it"
            ) from None
        return pandas.DataFrame(self.rows())

    def data(self) -> dict[str, Any]:
        """The whole profile as JSON can hold it."""
        return {
            "model": self.model,
            "device": self.device,
            "threads": self.threads,
            "total": self.total,
            "run": self.run_seconds,
            "roof": None if self.roof is None else {"machine": self.roof.name, "source": self.roof.source},
            "kernels": self.rows(),
        }

    def json(self) -> str:
        """The whole profile as JSON."""
        return json.dumps(self.data(), indent=1)

    def csv(self) -> str:
        """The rows as CSV; the other nodes of a kernel are separated by spaces."""
        out = io.StringIO()
        rows = self.rows()
        writer = csv.DictWriter(
            out, list(_EMPTY.rows()[0]) if not rows else list(rows[0]), lineterminator="\n"
        )
        writer.writeheader()
        writer.writerows({**row, "nodes": " ".join(row["nodes"])} for row in rows)
        return out.getvalue()

    def trace(self) -> dict[str, Any]:
        """A run as trace events, which ui.perfetto.dev and chrome://tracing show: the kernels one after the other."""
        events: list[dict[str, Any]] = [
            {"ph": "M", "pid": 1, "name": "process_name", "args": {"name": f"{self.model} on {self.device}"}},
            {"ph": "M", "pid": 1, "tid": 1, "name": "thread_name", "args": {"name": "kernels"}},
        ]
        rows, now = self.rows(), 0.0
        for number, seconds in self.timeline or [(i, k.seconds) for i, k in enumerate(self.kernels)]:
            row = rows[number]
            told = {k: v for k, v in row.items() if v not in (None, "", []) and k not in ("seconds", "share")}
            events.append(
                {
                    "ph": "X",
                    "pid": 1,
                    "tid": 1,
                    "cat": "kernel",
                    "name": row["node"] or row["name"],
                    "ts": now * 1e6,
                    "dur": seconds * 1e6,
                    "args": told,
                }
            )
            now += seconds
        return {"displayTimeUnit": "ms", "traceEvents": events}

    def save(self, path: str | Path) -> None:
        """Write the profile: *.csv, a trace (*.trace.json, trace.json), or *.json."""
        place = Path(path)
        write = writer_of(place)
        place.write_text(write(self), encoding="utf-8")

    # -- text and tables ------------------------------------------------------------------------------
    def table(self, sort: bool = True) -> str:
        """The profile as text, the longest kernels first unless `sort` is False."""
        columns = list(self._columns(sort))
        rows = [[title, *cells] for title, _, cells in columns]
        widths = [max(map(len, cells)) for cells in rows]
        lines = []
        for cells in zip(*rows, strict=True):
            padded = [
                c.rjust(w) if right else c.ljust(w)
                for c, w, (_, right, _) in zip(cells, widths, columns, strict=True)
            ]
            lines.append("  ".join(padded).rstrip())
        return "\n".join([*lines, *self.notes()])

    def notes(self) -> list[str]:
        """The lines below the table."""
        threads = (
            f"{self.threads} thread{'' if self.threads == 1 else 's'}"
            if self.device == "cpu"
            else self.device
        )
        told = [f"total {self.total * 1e6:,.2f} us in kernels"]
        if self.run_seconds is not None:
            told.append(f"a run takes {self.run_seconds * 1e6:,.2f} us")
        out = [f"{'; '.join(told)}; {threads}"]
        if self.call_seconds > 0.02 * self.total:
            more = f"{self.call_seconds * 1e6:.2f} us"
            out.append(
                f"one by one, a kernel takes about {more} longer than in a run: its call, and threads that wake"
            )
        if any(k.roof is not None for k in self.kernels) and self.roof is not None:
            out.append(f"roof: the peak of {self.roof.text}")
        return out

    def __rich__(self) -> Table:
        from rich import box
        from rich.table import Table
        from rich.text import Text

        made = Table(
            box=box.SIMPLE_HEAD, pad_edge=False, caption="\n".join(self.notes()), caption_justify="left"
        )
        columns = list(self._columns(True))
        for title, right, _ in columns:
            # Names and shapes are folded; figures are not.
            made.add_column(title, justify="right" if right else "left", no_wrap=right, overflow="fold")
        for cells in zip(*(cells for _, _, cells in columns), strict=True):
            made.add_row(*map(Text, cells))  # as texts: in a string, [n, 3] would be markup
        return made

    def _columns(self, sort: bool) -> Iterator[tuple[str, bool, list[str]]]:
        """The title of each column, whether it is aligned to the right, and its cells."""
        kernels: Sequence[KernelProfile] = self.kernels
        if sort:
            kernels = sorted(kernels, key=lambda k: -k.seconds)
        total = self.total or 1.0
        yield "us", True, [f"{k.seconds * 1e6:.2f}" for k in kernels]
        yield "%", True, [f"{100 * k.seconds / total:.1f}" for k in kernels]
        if any(k.calls > 1 for k in kernels):
            yield "calls", True, [str(k.calls) for k in kernels]
        if any(k.flops is not None for k in kernels):
            yield "GFLOP/s", True, [_figure(k.gflops) for k in kernels]
        if any(k.nbytes is not None for k in kernels):
            yield "GB/s", True, [_figure(k.gbytes) for k in kernels]
        if any(k.roof is not None for k in kernels):
            yield "% roof", True, ["" if k.roof is None else f"{100 * k.roof:.0f}" for k in kernels]
        if any(k.nodes for k in kernels):
            yield "node", False, [k.node + f" +{len(k.nodes) - 1}" * (len(k.nodes) > 1) for k in kernels]
        yield "name", False, [k.name for k in kernels]
        yield "results", False, [k.shapes for k in kernels]

    def __str__(self) -> str:
        return self.table()


Report = Profile  # the classic name
_EMPTY = Profile((KernelProfile("", "", 0.0, ""),))


def _figure(value: float | None) -> str:
    return "" if value is None else f"{value:.1f}"


def writer_of(path: Path) -> Any:
    """The function that gives the text of a profile for a file, by the file's name."""
    if path.suffix == ".csv":
        return Profile.csv
    if path.name.endswith("trace.json"):
        return lambda profile: json.dumps(profile.trace())
    if path.suffix == ".json":
        return Profile.json
    raise ValueError(
        f"{path}: a profile is written to a file named *.csv, *.json (data) or *.trace.json (for ui.perfetto.dev)"
    )


def text_of(tensors: Sequence[tuple[str, Sequence[int]]]) -> str:
    """Types and shapes as text."""
    return ", ".join(f"{dtype}{list(shape)}" for dtype, shape in tensors)


def arithmetic_type(tensors: Sequence[tuple[str, int]]) -> str:
    """The type of a kernel's arithmetic: that of its largest argument (type, bytes)."""
    return max(tensors, key=lambda t: t[1], default=("", 0))[0]
