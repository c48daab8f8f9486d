"""`TensorIntrin`: a description, an implementation, and the table of them by name."""

from __future__ import annotations

import difflib
import importlib
import itertools
from collections.abc import Callable

from ...ir.buffer import Buffer
from ...ir.equal import structural_equal
from ...ir.function import PrimFunc
from ...ir.stmt import Block, BlockRealize

BUILT_IN: tuple[str, ...] = ("x86", "arm_cpu", "dot_product_common", "cuda")
_table: dict[str, TensorIntrin] = {}
_later: dict[
    str, Callable[[], tuple[PrimFunc, PrimFunc]]
] = {}  # intrinsics that are built at their first use


class TensorIntrin:
    """The computation of an instruction (`desc`, loops over blocks) and its call (`impl`).

    Both are functions over the same buffers; `impl` may leave their strides and offsets open.
    """

    __slots__ = ("desc", "impl")

    def __init__(self, desc: PrimFunc, impl: PrimFunc) -> None:
        for what, func in (("desc", desc), ("impl", impl)):
            if not isinstance(func, PrimFunc):
                raise TypeError(f"the {what} of a tensor intrinsic is a PrimFunc, not {type(func).__name__}")
            body_block(func, what)
        _check_buffers(desc, impl)
        self.desc, self.impl = desc, impl

    @staticmethod
    def register(name: str, desc: PrimFunc, impl: PrimFunc, override: bool = False) -> TensorIntrin:
        """Make an intrinsic known by a name."""
        made = TensorIntrin(desc, impl)
        _load()
        if (name in _table or name in _later) and not override:
            raise ValueError(
                f"a tensor intrinsic is registered as {name!r} already; pass override=True to replace it"
            )
        _table[name] = made
        return made

    @staticmethod
    def get(name: str, allow_missing: bool = False) -> TensorIntrin | None:
        """The intrinsic of a name; None for an unknown name if `allow_missing`."""
        _load()
        found = _table.get(name)
        if found is None and name in _later:
            found = _table[name] = TensorIntrin(*_later[name]())
        if found is None and not allow_missing:
            raise ValueError(f"no tensor intrinsic is registered as {name!r}{near(name)}")
        return found

    @staticmethod
    def known_as(name: str, desc: PrimFunc, impl: PrimFunc) -> str:
        """The name of an intrinsic like this one, registered if there is none: `name`, or with a number."""
        _load()
        for number in itertools.count():
            chosen = f"{name}_{number}" if number else name
            held = TensorIntrin.get(chosen, allow_missing=True)
            if held is None:
                TensorIntrin.register(chosen, desc, impl)
                return chosen
            if structural_equal(held.desc, desc) and structural_equal(held.impl, impl):
                return chosen
        raise AssertionError

    def __repr__(self) -> str:
        return f"TensorIntrin(\n{self.desc}\n{self.impl}\n)"


def built_in(name: str, desc: PrimFunc, impl: PrimFunc) -> str:
    """Add a built-in intrinsic to the table; returns its name."""
    _table[name] = TensorIntrin(desc, impl)
    return name


def built_in_later(name: str, make: Callable[[], tuple[PrimFunc, PrimFunc]]) -> str:
    """Add a built-in intrinsic to the table, to be built at its first use; returns its name."""
    _later[name] = make
    return name


def near(name: str) -> str:
    """A hint at registered names that look like one that is not."""
    found = difflib.get_close_matches(name, [*_table, *_later], 3, 0.6)
    return f"; did you mean {' or '.join(map(repr, found))}?" if found else ""


def body_block(func: PrimFunc, what: str) -> Block:
    """The body block of a description or implementation."""
    body = func.body
    if not isinstance(body, BlockRealize) or body.block.iter_vars:
        raise ValueError(f"the body of the {what} of a tensor intrinsic is one block without iterators")
    inner = body.block.body
    # `with T.block("root")` in a script is a block inside the function's own.
    bare = not (body.block.alloc_buffers or body.block.match_buffers or body.block.annotations)
    if bare and isinstance(inner, BlockRealize) and not inner.block.iter_vars:
        return inner.block
    return body.block


def params(func: PrimFunc, what: str) -> list[Buffer]:
    """The buffers that a description or implementation works on, in order."""
    out = []
    for p in func.params:
        if p not in func.buffer_map:
            raise ValueError(f"parameter {p.name} of the {what} of a tensor intrinsic is not a buffer")
        out.append(func.buffer_map[p])
    return out


def _check_buffers(desc: PrimFunc, impl: PrimFunc) -> None:
    ours, theirs = params(desc, "desc"), params(impl, "impl")
    if len(ours) != len(theirs):
        raise ValueError(f"the desc of a tensor intrinsic has {len(ours)} buffers and its impl {len(theirs)}")
    for a, b in zip(ours, theirs, strict=True):
        if a.dtype is not b.dtype or len(a.shape) != len(b.shape) or a.scope() != b.scope():
            raise ValueError(
                f"the desc of a tensor intrinsic takes {_kind(a)} where its impl takes {_kind(b)}"
            )
        if a.const_shape() != b.const_shape():
            raise ValueError(
                f"the desc of a tensor intrinsic takes {_kind(a)} where its impl takes {_kind(b)}"
            )


def _kind(b: Buffer) -> str:
    return f"{b.name} ({', '.join(map(str, b.shape))}) {b.dtype} in {b.scope()}"


def _load() -> None:
    """Load the built-in intrinsics at the first use of the table."""
    global BUILT_IN
    names, BUILT_IN = BUILT_IN, ()
    for name in names:
        importlib.import_module(f"{__package__}.{name}")
