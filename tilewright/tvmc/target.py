"""Targets on the command line: `--target "dnnl -opt=1, llvm -mcpu=znver4"`, JSON, or a file of JSON.

Names before the last are code generators of others (composite_target.py), or the target of the device before its host.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from ..target import Target
from .composite_target import get_codegen_names
from .errors import TVMCException

Options = Mapping[str, Mapping[str, Any]]
# a word, or an option with a value, which may be quoted; or a comma between targets
_TOKEN: Final = re.compile(r"""(-{0,2}[\w\-]+(?:=(?:'[^']*'|"[^"]*"|[^\s,'"]+(?:,[^\s,'"]+)*))?|,)""")


def tokenize_target(target: str) -> list[str]:
    """The words of a target: names, options with their values, and the commas between targets.

    foo -a=1 --flag, bar -b="x, y"    ->    foo  -a=1  --flag  ,  bar  -b="x, y"
    """
    return _TOKEN.findall(target)


def parse_target(target: str) -> list[dict[str, Any]]:
    """The targets of a text, in order: `name`, `opts` by name, `raw` text, and whether it is one of tilewright."""
    words: list[list[str]] = [[]]
    for token in tokenize_target(target):
        if token == ",":
            words.append([])
        else:
            words[-1].append(token)
    if not all(words):
        raise ValueError("a name of a target is missing before or after a comma")
    own = set(Target.list_kinds()) - set(get_codegen_names())
    return [
        {
            "name": name,
            "opts": dict(map(_option, rest)),
            "raw": " ".join([name, *rest]),
            "is_tvm_target": name in own,
        }
        for name, *rest in words
    ]


def _option(text: str) -> tuple[str, Any]:
    name, sign, value = text.lstrip("-").partition("=")
    if not sign:
        if not text.startswith("--"):
            raise ValueError(f"{text!r} is not an option: write -name=value, or --name for a switch")
        return name, True
    return name, value[1:-1] if value[:1] in ("'", '"') else value


def validate_targets(
    parse_targets: Sequence[Mapping[str, Any]], additional_target_options: Options | None = None
) -> None:
    """Refuse targets that are named twice, end with a code generator of others, or are more than a device and host."""
    names = [t["name"] for t in parse_targets]
    if twice := next((n for n in names if names.count(n) > 1), None):
        raise TVMCException(f"--target: {twice} is named twice; name it once")
    if names[-1] not in Target.list_kinds():
        raise TVMCException(
            f"--target: the last target must be one of {', '.join(Target.list_kinds())}, not {names[-1]!r}"
        )
    own = [t["name"] for t in parse_targets if t["is_tvm_target"]]
    if len(own) > 2:
        raise TVMCException(
            f"--target: {', '.join(own)} are more than a device and its host; name at most two of them"
        )
    for name, options in (additional_target_options or {}).items():
        if name not in names:
            raise TVMCException(
                f"--target-{name}-{next(iter(options), '')} is given, and --target does not name {name}; add it there"
            )


def is_inline_json(target: str) -> bool:
    """Whether a text is JSON."""
    try:
        return isinstance(json.loads(target), dict)
    except json.JSONDecodeError:
        return False


def _text(target: Mapping[str, Any]) -> str:
    options = (f"--{k}" if v is True else f"-{k}={v}" for k, v in target["opts"].items())
    return " ".join([target["name"], *options])


def target_from_cli(
    target: str, additional_target_options: Options | None = None
) -> tuple[Target, list[dict[str, Any]]]:
    """The target of a text, of JSON or of a file of JSON, and the code generators before it, as of `parse_target`.

    `additional_target_options` are further options by the name of the target.
    """
    path = Path(target)
    if len(target) < 4096 and path.is_file():
        target = path.read_text(encoding="utf-8")
    if is_inline_json(target):
        return Target(json.loads(target)), []
    try:
        parsed = parse_target(target)
    except ValueError as error:
        raise TVMCException(f"--target {target!r}: {error}") from None
    validate_targets(parsed, additional_target_options)
    for each in parsed:
        each["opts"].update((additional_target_options or {}).get(each["name"], {}))
    own = [_text(t) for t in parsed if t["is_tvm_target"]]
    return Target(own[0], host=own[1] if len(own) > 1 else None), [
        t for t in parsed if not t["is_tvm_target"]
    ]
