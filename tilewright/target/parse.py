"""Parsing and checking of targets: from text, JSON, a tag or a dict to kind, options and host."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from ..ir.errors import TargetError, near_matches
from ..ir.say_once import say_once
from ..ir.serialize import read_json
from .cpus import architecture_of_cpu, architecture_of_triple
from .kinds import OPTION_ALIASES, Option, TargetKind, kind_named
from .machine import figures_of_text


class Parsed(NamedTuple):
    """A target as it was given: kind, options (checked), keys in order, and the host as it was written."""

    kind: TargetKind
    attrs: dict[str, Any]
    keys: tuple[str, ...]
    host: Any
    tag: str


def parse_target(given: str | Mapping[str, Any]) -> Parsed:
    """Read a target string, a JSON text, a tag or a dict."""
    if isinstance(given, Mapping):
        return _from_mapping(dict(given), str(dict(given)))
    text = given.strip()
    if not text:
        raise TargetError('an empty string is not a target; write for example "llvm" or "cuda -arch=sm_80"')
    if text.startswith("{"):
        read = read_json(text, f"target {text[:80]!r} looks like JSON and is not", TargetError)
        return _from_mapping(read, text)
    from .tag import tag_config

    config = tag_config(text)
    if config is not None:
        return _from_mapping({**config, "tag": text}, text)
    return _from_words(text)


def _from_words(text: str) -> Parsed:
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise TargetError(f"target {text!r}: {error}") from None
    if words[0].startswith("-"):
        raise TargetError(f"target {text!r} must begin with its kind, such as llvm, not with an option")
    kind = _kind_or_tag(words[0], text)
    given: dict[str, Any] = {}
    host: str | None = None
    position = 1
    while position < len(words):
        word = words[position]
        position += 1
        if not word.startswith("-") or word.strip("-") == "":
            raise TargetError(f"target {text!r}: {word!r} is not an option; options begin with `-`")
        name, equals, value = word.lstrip("-").partition("=")
        if name == "host":
            host, position = _written_host(value, equals, words, position, text, host)
            continue
        name, option = _option(kind, name, text)
        held: Any = value
        if not equals:
            following = words[position] if position < len(words) else None
            # `-mcpu skylake` and `-mattr -avx2`, but `-system-lib` alone means yes.
            if option.type == "bool" or following is None:
                held = True
            elif option.type == "list" or not following.startswith("-"):
                held, position = following, position + 1
        _put(given, name, _checked(name, option, held, text), text)
        _warn_if_idle(name, option, given[name])
    return _finish(kind, given, host, "", text, words[0])


def _written_host(
    value: str, equals: str, words: list[str], position: int, text: str, before: str | None
) -> tuple[str, int]:
    """The host of `-host=llvm` or `--host llvm`, and the position behind it."""
    if not equals and position < len(words):
        value, position = words[position], position + 1
    if not value or value.startswith("-"):
        raise TargetError(f"target {text!r}: -host needs a value: -host=llvm")
    if before is not None and before != value:
        raise TargetError(f"target {text!r}: -host is given twice, as {before!r} and as {value!r}")
    return value, position


def _kind_or_tag(name: str, text: str) -> TargetKind:
    from .tag import tag_names

    if "/" in name:
        raise TargetError(f"unknown target tag {name!r}{near_matches(name, tag_names())}")
    try:
        return kind_named(name)
    except TargetError as error:
        raise TargetError(f"{error}" if name == text else f"target {text!r}: {error}") from None


def _from_mapping(given: dict[str, Any], text: str) -> Parsed:
    if not isinstance(given, dict):
        raise TargetError(f"target {text!r} is not a dict with a kind")
    tag = str(given.pop("tag", "") or "")
    if "kind" not in given and tag:
        from .tag import tag_config, tag_names

        config = tag_config(tag)
        if config is None:
            raise TargetError(f"unknown target tag {tag!r}{near_matches(tag, tag_names())}")
        given = {**config, **given}
    name = given.pop("kind", None)
    if not isinstance(name, str):
        raise TargetError(f'target {text} has no kind; write {{"kind": "llvm", …}}')
    kind = _kind_or_tag(name, text)
    host = given.pop("host", None)
    given.pop("features", None)  # derived from the others; `export()` of the classic stack writes it
    attrs: dict[str, Any] = {}
    for key, value in given.items():
        if value is None:
            continue
        option_name, option = _option(kind, str(key), text)
        _put(attrs, option_name, _checked(option_name, option, value, text), text)
        _warn_if_idle(option_name, option, attrs[option_name])
    return _finish(kind, attrs, host, tag, text, name)


def _option(kind: TargetKind, name: str, text: str) -> tuple[str, Option]:
    if name not in kind.options:
        name = OPTION_ALIASES.get(name, name)
    found = kind.options.get(name)
    if found is None:
        raise TargetError(
            f"target {text!r}: {kind.name} has no option -{name}{near_matches(name, kind.options)}"
        )
    return name, found


def _put(attrs: dict[str, Any], name: str, value: Any, text: str) -> None:
    if name in attrs and attrs[name] != value:
        raise TargetError(f"target {text!r}: -{name} is given twice, as {attrs[name]!r} and as {value!r}")
    attrs[name] = value


def _warn_if_idle(name: str, option: Option, value: Any) -> None:
    """Warn about an option that a program sets and that has no effect."""
    if option.idle and value:
        say_once(f"target option -{name} does nothing here: {option.idle}")


_YES, _NO = ("1", "true", "on", "yes"), ("0", "false", "off", "no")


def _checked(name: str, option: Option, value: Any, text: str) -> Any:
    """The value in the option's own type."""
    what = f"target {text!r}: -{name}"
    if option.type == "bool":
        if isinstance(value, (bool, int)) and value in (0, 1):
            return bool(value)
        word = str(value).lower()
        if word not in (*_YES, *_NO):
            raise TargetError(f"{what} is a switch: it takes 0 or 1, not {value!r}")
        return word in _YES
    if value is True or value == "":
        raise TargetError(f"{what} needs a value: -{name}=…")
    if option.type == "int":
        return _checked_int(what, option, value)
    if option.type == "list":
        if not isinstance(value, str) and (not isinstance(value, Iterable) or isinstance(value, Mapping)):
            raise TargetError(f"{what} takes names separated by commas, not {value!r}")
        items = value.split(",") if isinstance(value, str) else [str(v) for v in value]
        return tuple(item.strip() for item in items if item.strip())
    if not isinstance(value, str):
        raise TargetError(f"{what} takes text, not {value!r} ({type(value).__name__})")
    if option.choices and value not in option.choices:
        raise TargetError(f"{what} is {value!r}{near_matches(value, option.choices)}")
    return value


def _checked_int(what: str, option: Option, value: Any) -> int:
    wanted = "an integer" if option.low is None else f"an integer of at least {option.low}"
    try:
        number = int(value, 0) if isinstance(value, str) else value
    except ValueError:
        raise TargetError(f"{what} takes {wanted}, not {value!r}") from None
    if isinstance(number, bool) or not isinstance(number, int):
        raise TargetError(f"{what} takes {wanted}, not {value!r}")
    if option.low is not None and number < option.low:
        raise TargetError(f"{what} takes {wanted}, not {number}")
    return number


def _finish(kind: TargetKind, attrs: dict[str, Any], host: Any, tag: str, text: str, written: str) -> Parsed:
    tag = str(attrs.pop("tag", tag))
    if written == "vta":
        attrs.setdefault("device", "vta")
    asked = attrs.pop("keys", ())
    _fill_from_model(kind, attrs)
    if attrs.get("max_num_threads", 0) > kind.defaults.get("max_threads_per_block", 1 << 31):
        attrs.setdefault("max_threads_per_block", attrs["max_num_threads"])  # explicit keys are kept
    for name, value in kind.defaults.items():
        attrs.setdefault(name, value)
    check_target(kind, attrs, text)
    keys = [*asked, *([attrs["device"]] if "device" in attrs else []), *_implied_keys(kind, attrs)]
    return Parsed(kind, attrs, tuple(dict.fromkeys([*keys, *kind.default_keys])), host, tag)


def _implied_keys(kind: TargetKind, attrs: dict[str, Any]) -> list[str]:
    """The key of the architecture, under which operator strategies are looked up."""
    if kind.name != "llvm":
        return []
    arch = architecture_of_triple(attrs["mtriple"]) if "mtriple" in attrs else None
    arch = arch or architecture_of_cpu(attrs.get("mcpu", ""))
    return ["arm_cpu"] if arch in ("aarch64", "arm") else []


def _fill_from_model(kind: TargetKind, attrs: dict[str, Any]) -> None:
    """Fill in the known figures of a named GPU where the target does not give them."""
    if kind.name != "cuda":
        return
    if "mcpu" in attrs:
        _put(attrs, "arch", attrs.pop("mcpu"), f"cuda -arch={attrs.get('arch')}")
    from .gpus import figures_of_model

    for name, value in (figures_of_model(str(attrs.get("model", ""))) or {}).items():
        attrs.setdefault(name, value)


def check_target(kind: TargetKind, attrs: Mapping[str, Any], text: str) -> None:
    """Refuse options that contradict each other."""
    what = f"target {text!r}"
    features: dict[str, str] = {}
    for item in attrs.get("mattr", ()):
        if item[0] not in "+-" or len(item) < 2:
            raise TargetError(f"{what}: -mattr takes +feature and -feature, not {item!r}; write +{item}")
        if features.setdefault(item[1:], item[0]) != item[0]:
            raise TargetError(f"{what}: -mattr switches {item[1:]!r} both on and off")
    if kind.name == "cuda" and "arch" in attrs:
        if not re.fullmatch(r"(sm|compute)_\d{2,3}[af]?", attrs["arch"]):
            raise TargetError(f"{what}: -arch is {attrs['arch']!r}; it looks like sm_80")
    if attrs.get("opt-level", 0) > 3:
        raise TargetError(f"{what}: -opt-level goes from 0 to 3, not {attrs['opt-level']}")
    limit, used = attrs.get("max_threads_per_block"), attrs.get("max_num_threads")
    if limit is not None and used is not None and used > limit and "max_num_threads" not in kind.defaults:
        raise TargetError(f"{what}: -max_num_threads={used} is above -max_threads_per_block={limit}")
    if kind.family == "cpu":
        _check_cpu(attrs, what)


def _check_cpu(attrs: Mapping[str, Any], what: str) -> None:
    triple, cpu = attrs.get("mtriple"), attrs.get("mcpu", "")
    if "machine" in attrs:
        figures_of_text(attrs["machine"], what)
    arch = None
    if triple is not None:
        arch = architecture_of_triple(triple)
        if arch is None:
            raise TargetError(
                f"{what}: -mtriple={triple} begins with no known architecture "
                "(x86_64, i686, aarch64, armv7a, riscv64, riscv32, wasm32, wasm64, powerpc64le, s390x, …)"
            )
        if arch in ("nvptx", "amdgcn"):
            other = "cuda" if arch == "nvptx" else "rocm"
            raise TargetError(f"{what}: -mtriple={triple} is a GPU; use the kind {other}")
    of_cpu = architecture_of_cpu(cpu)
    if (
        arch
        and of_cpu
        and of_cpu != arch
        and {arch, of_cpu} != {"arm", "aarch64"}
        and {arch, of_cpu}
        != {
            "x86",
            "x86_64",
        }
    ):
        raise TargetError(f"{what}: -mcpu={cpu} is a CPU of {of_cpu}, but -mtriple={triple} is {arch}")
    if attrs.get("device") == "arm_cpu" and (arch or of_cpu) in ("x86_64", "x86"):
        raise TargetError(f"{what}: -device=arm_cpu, but the processor is {arch or of_cpu}")
