"""Schedules as they were and as they are: the net under changes of the scheduler.

    python scripts/replay.py record FILE                    all programs on all targets, as they are compiled now
    python scripts/replay.py record FILE --at COMMIT        as that commit compiles them
    python scripts/replay.py compare FILE                   what changed since; exit status 1 if anything did
    python scripts/replay.py compare FILE OTHER             what differs between two recordings
    python scripts/replay.py compare --at HEAD~5            what changed since that commit: records both
    python scripts/replay.py compare FILE --show NAME TARGET     the traces and explanations, line by line

A recording holds, for each program and target, the trace of the schedule without trials, its `explain()`, the time that
is predicted, and digests of the scheduled program, of the lowered one and of the generated source; or the error. It
depends on nothing but the tree and the corpus: `--at` runs this script's programs on another commit's compiler.
`--only` takes a pattern of names ('topi/*conv*'), `--sample 40` some programs of all kinds for a quick look.
"""

from __future__ import annotations

import argparse
import difflib
import gzip
import io
import json
import math
import os
import subprocess
import sys
import tarfile
import tempfile
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
RECORDER = ROOT / "scripts" / "replay_record.py"
FORMAT = 1  # of the file
TARGETS = {
    "znver4": "llvm -mtriple=x86_64-unknown-linux-gnu -mcpu=znver4 -num-cores=8",
    "haswell": "llvm -mtriple=x86_64-unknown-linux-gnu -mcpu=haswell -num-cores=4",
    "neoverse-n1": "llvm -mtriple=aarch64-unknown-linux-gnu -mcpu=neoverse-n1 -num-cores=16",
    "riscv64": "llvm -mtriple=riscv64-unknown-linux-gnu -mcpu=generic-rv64 -num-cores=4",
    "sm_75": "cuda -arch=sm_75",
    "sm_80": "cuda -arch=sm_80",
    "sm_90a": "cuda -arch=sm_90a",
    "opencl": "opencl",
}
FIELDS = {
    "input": "input", "trace": "trace", "explain": "explain", "us": "time", "program": "program",
    "lowered": "lowered", "source": "source", "error": "error",
}  # fmt: skip


# ---------------------------------------------------------------------------- recording
@dataclass(frozen=True)
class Options:
    """Which programs are recorded on which targets, and by how many processes."""

    targets: tuple[str, ...] = tuple(TARGETS)
    only: str = "*"
    sample: int = 0
    workers: int = 1
    slowest: int = 0


def record(path: Path, options: Options, commit: str | None = None) -> None:
    """Write a recording of this tree, or of a commit."""
    with _tree(commit) as tree, tempfile.TemporaryDirectory() as home:
        given = {**vars(options), "commit": _name_of(commit)}
        command = [sys.executable, str(RECORDER), str(path), json.dumps(given)]
        done = subprocess.run(command, cwd=home, env=isolated(tree, home), check=False)
    if done.returncode:
        sys.exit(f"the recording of {_name_of(commit)} failed; what is above says why")


def isolated(tree: Path, home: str) -> dict[str, str]:
    """An environment in which the user's settings, caches and records do not show."""
    ours = ("TILEWRIGHT_", "TVM_", "XDG_", "PYTHONPATH")
    kept = {k: v for k, v in os.environ.items() if not k.startswith(ours)}
    return {
        **kept,
        "PYTHONPATH": str(tree),
        "TILEWRIGHT_CACHE": "0",
        "TILEWRIGHT_CACHE_DIR": home,
        "XDG_CACHE_HOME": home,
        "XDG_CONFIG_HOME": home,
        "TILEWRIGHT_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "OMP_NUM_THREADS": "1",
    }


@contextmanager
def _tree(commit: str | None) -> Iterator[Path]:
    """A folder with the package: this repository, or a temporary one with the files of a commit."""
    if commit is None:
        yield ROOT
        return
    packed = _git("archive", "--format=tar", commit, "tilewright")
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(fileobj=io.BytesIO(packed)) as tar:
            tar.extractall(folder, filter="data")
        yield Path(folder)


def _name_of(commit: str | None) -> str:
    """The tree that is recorded, for people."""
    name = _git("rev-parse", "--short=12", f"{commit or 'HEAD'}^{{commit}}").decode().strip()
    changed = commit is None and _git("status", "--porcelain", "tilewright").strip()
    return f"{name} and changes" if changed else name


def _git(*words: str) -> bytes:
    done = subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, check=False)
    if done.returncode:
        sys.exit(f"git {' '.join(words)}: {done.stderr.decode().strip()}")
    return done.stdout


# ---------------------------------------------------------------------------- comparing
@dataclass(frozen=True)
class Recording:
    """A recording as it was read: its head, and its programs by name."""

    head: dict[str, Any]
    programs: dict[str, dict[str, Any]]

    def found(self) -> dict[tuple[str, str], dict[str, Any]]:
        """What was recorded, by program and target."""
        return {
            (name, target): {"input": p["input"], **made}
            for name, p in self.programs.items()
            for target, made in p["targets"].items()
        }


def read(path: Path) -> Recording:
    try:
        head, *programs = [json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()]
    except (OSError, ValueError, EOFError) as error:
        sys.exit(f"{path} cannot be read as a recording: {error}; `record` writes one")
    if head.get("format") != FORMAT:
        sys.exit(
            f"{path} is a recording of format {head.get('format')}, and this script reads format {FORMAT}: "
            "record it anew"
        )
    return Recording(head, {p["name"]: p for p in programs})


def changes(old: Recording, new: Recording) -> dict[tuple[str, str], list[str]]:
    """What differs, by program and target: the names of fields, or that it is in one of them only."""
    before, after = old.found(), new.found()
    out: dict[tuple[str, str], list[str]] = {}
    for key in sorted({*before, *after}):
        if key not in after or key not in before:
            out[key] = ["gone" if key in before else "added"]
            continue
        a, b = before[key], after[key]
        different = [word for field, word in FIELDS.items() if a.get(field) != b.get(field)]
        if different:
            out[key] = different
    return out


def report(old: Recording, new: Recording, limit: int) -> bool:
    """Print what changed, and whether anything did."""
    changed, before, after = changes(old, new), old.found(), new.found()
    print(f"{old.head['commit']} -> {new.head['commit']}: {len(changed)} of {len({*before, *after})} changed")
    if changed:
        print(_in_columns(_lines(changed, before, after, limit)))
        if limit and len(changed) > limit:
            print(f"and {len(changed) - limit} more; --limit 0 lists all")
        print(_in_columns(_summary(changed, before, after)))
    return bool(changed)


def _in_columns(rows: list[list[str]]) -> str:
    """Lines of text, with what a row has beyond the columns of the first one in a line of its own."""
    count = len(rows[0])
    widths = [max(len(r[i]) for r in rows) for i in range(count)]
    lines = []
    for r in rows:
        lines.append("  ".join(text.ljust(w) for text, w in zip(r, widths)).rstrip())
        lines += [f"    {more}" for more in r[count:]]
    return "\n".join(["", *lines])


def _lines(changed: Any, before: Any, after: Any, limit: int) -> list[list[str]]:
    rows = [["program", "target", "changed", "old us", "new us", "new / old"]]
    for key in list(changed)[: limit or None]:
        a, b = (found.get(key, {}) for found in (before, after))
        ratio = _ratio(a, b)
        rows.append(
            [*key, ", ".join(changed[key]), _time(a), _time(b), "" if ratio is None else f"{ratio:.3f}"]
        )
        if "error" in changed[key]:
            rows[-1].append(f"{a.get('error', 'no error')} -> {b.get('error', 'no error')}")
    return rows


def _summary(changed: Any, before: Any, after: Any) -> list[list[str]]:
    """How many programs changed on each target, and the mean ratio of the predicted times of those."""
    words = [w for w in (*FIELDS.values(), "gone", "added") if any(w in kinds for kinds in changed.values())]
    rows = [["target", "programs", "changed", *words, "new / old"]]
    for target in [t for t in TARGETS if any(t == key[1] for key in (*before, *after))]:
        mine = {k: v for k, v in changed.items() if k[1] == target}
        ratios = [r for k in mine if (r := _ratio(before.get(k, {}), after.get(k, {}))) is not None]
        mean = f"{math.exp(sum(map(math.log, ratios)) / len(ratios)):.3f}" if ratios else ""
        counts = [str(sum(w in kinds for kinds in mine.values())) for w in words]
        everything = len({k for k in (*before, *after) if k[1] == target})
        rows.append([target, str(everything), str(len(mine)), *counts, mean])
    return rows


def _time(made: dict[str, Any]) -> str:
    return "" if made.get("us") is None else f"{made['us']:g}"


def _ratio(a: dict[str, Any], b: dict[str, Any]) -> float | None:
    return b["us"] / a["us"] if a.get("us") and b.get("us") else None


def show(old: Recording, new: Recording, name: str, target: str) -> None:
    """Print the trace and the explanation of a program, old and new, as a difference."""
    before, after = (r.found().get((name, target)) for r in (old, new))
    if before is None and after is None:
        near = difflib.get_close_matches(name, [*old.programs, *new.programs], 3, 0.4)
        sys.exit(f"neither recording has {name!r} for {target!r}; there are {', '.join(near) or 'others'}")
    names = (old.head["commit"], new.head["commit"])
    for what in ("trace", "explain"):
        texts = [_text((found or {}).get(what)) for found in (before, after)]
        lines = list(difflib.unified_diff(*texts, *(f"{what} {n}" for n in names), lineterm="", n=10**6))
        print("\n".join(lines) if lines else f"the {what} is the same:\n" + "\n".join(texts[0]))


def _text(value: Any) -> list[str]:
    return (value if isinstance(value, str) else json.dumps(value, indent=2, ensure_ascii=False)).splitlines()


# ---------------------------------------------------------------------------- the command line
def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument(
        "--at", metavar="COMMIT", help="the commit whose compiler is recorded (compare: the old one)"
    )
    common.add_argument("--targets", help=f"some of {','.join(TARGETS)}")
    common.add_argument("--only", metavar="PATTERN", help="programs whose names match, such as 'topi/*conv*'")
    common.add_argument("--sample", type=int, metavar="N", help="N programs of all kinds")
    common.add_argument(
        "--workers", type=int, default=os.cpu_count() or 1, metavar="N", help="processes (default: cores)"
    )
    common.add_argument(
        "--slowest",
        type=int,
        default=0,
        metavar="N",
        help="name the N programs that took longest to schedule",
    )
    one = commands.add_parser("record", parents=[common], help="write a recording")
    one.add_argument("file", type=Path)
    two = commands.add_parser("compare", parents=[common], help="say what changed")
    two.add_argument("file", type=Path, nargs="?", help="the old recording")
    two.add_argument("other", type=Path, nargs="?", help="the new recording; this tree is recorded otherwise")
    two.add_argument(
        "--show", nargs=2, metavar=("NAME", "TARGET"), help="the difference of one program's traces"
    )
    two.add_argument("--limit", type=int, default=60, metavar="N", help="programs listed one by one (0: all)")
    args = parser.parse_args()
    if args.command == "compare" and (args.file is None) == (args.at is None):
        parser.error("compare takes either the file of an old recording or --at COMMIT")
    unknown = [t for t in (args.targets or "").split(",") if t and t not in TARGETS]
    if unknown:
        parser.error(f"--targets: {unknown[0]!r} is none of {', '.join(TARGETS)}")
    return args


def options_of(args: argparse.Namespace, head: dict[str, Any]) -> Options:
    """What is to be recorded: as the command says, else as the old recording was made."""
    targets, only = args.targets, args.only
    if getattr(args, "show", None):
        only, targets = args.show[0].replace("[", "[[]"), args.show[1]
        return Options((targets,), only, 0, args.workers)
    return Options(
        tuple(targets.split(",")) if targets else tuple(head.get("targets", TARGETS)),
        only if only is not None else head.get("only", "*"),
        args.sample if args.sample is not None else head.get("sample", 0),
        args.workers,
        args.slowest,
    )


def narrowed(r: Recording, options: Options) -> Recording:
    """The part of a recording that options ask for, where they ask for less than it holds."""
    names = [n for n in r.programs if fnmatch(n, options.only)]
    kept = {
        name: {**p, "targets": {t: made for t, made in p["targets"].items() if t in options.targets}}
        for name in sampled(names, options.sample)
        for p in [r.programs[name]]
    }
    return Recording(r.head, kept)


def sampled(names: Iterable[str], count: int) -> list[str]:
    """So many names of all kinds, in order; all of them if that is 0. More programs change few of the choices."""
    return sorted(sorted(names, key=lambda n: zlib.crc32(n.encode()))[: count or None])


def compare(args: argparse.Namespace) -> int:
    with tempfile.TemporaryDirectory() as folder:
        path, other = args.file, args.other
        options = options_of(args, {} if path is None else read(path).head)
        if path is None:
            path = Path(folder) / "old"
            record(path, options, args.at)
        if other is None:
            other = Path(folder) / "new"
            record(other, options)
        old, new = (narrowed(read(p), options) for p in (path, other))
    if args.show:
        show(old, new, *args.show)
        return int(bool(changes(old, new)))
    return int(report(old, new, args.limit))


def main() -> int:
    args = parsed()
    if args.command == "compare":
        return compare(args)
    record(args.file.resolve(), options_of(args, {}), args.at)
    made = read(args.file)
    print(
        f"{args.file}: {len(made.programs)} programs, {len(made.found())} with their targets, {made.head['commit']}"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
