"""Changes of a whole graph before it is compiled: layouts and smaller element types."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from .. import relay
from ..ir.errors import TVMError
from ..ir.transform import PassContext
from ..relay.op.registry import get
from ..relay.transform.mixed_precision import MIXED_PRECISION_ALWAYS
from .errors import TVMCException

LAYOUT_OPS: Final = ("nn.conv2d", "nn.conv2d_transpose", "qnn.conv2d")
PRECISION_OPS: Final = ("nn.conv2d", "nn.dense")
_RULE: Final = "FTVMMixedPrecisionConversionType"
_ARGS: Final = (
    "desired_layout", "desired_layout_ops", "mixed_precision", "mixed_precision_ops",
    "mixed_precision_calculation_type", "mixed_precision_acc_type",
)  # fmt: skip


def generate_mixed_precision_rule(acc_dtype: str) -> Callable[[Any, str], list[Any]]:
    """The rule of an operator that is always converted, with this type of accumulators."""
    return lambda call_node, mixed_precision_type: [MIXED_PRECISION_ALWAYS, acc_dtype, mixed_precision_type]


class MixedPrecision:
    """A context in which some operators are always converted, with a type of accumulators."""

    def __init__(self, ops: Sequence[str], acc_type: str) -> None:
        self.ops, self.acc_type = list(ops), acc_type
        self.older_attr: dict[str, Any] = {}

    def __enter__(self) -> MixedPrecision:
        for name in self.ops:
            op = get(name)
            self.older_attr[name] = op.get_attr(_RULE)
            op.set_attr(_RULE, generate_mixed_precision_rule(self.acc_type))
        return self

    def __exit__(self, *ignored: object) -> None:
        for name, before in self.older_attr.items():
            op = get(name)
            op.reset_attr(_RULE)
            if before is not None:
                op.set_attr(_RULE, before)


def convert_to_mixed_precision(
    mod: Any,
    ops: Sequence[str] | None = None,
    calculation_type: str | None = None,
    acc_type: str | None = None,
) -> Any:
    """A graph with some operators in a smaller float type, and accumulators of `acc_type`; results keep their types."""
    config = {"relay.ToMixedPrecision.keep_orig_output_dtype": True}
    passes = [relay.transform.InferType(), relay.transform.ToMixedPrecision(calculation_type or "float16")]
    try:
        with MixedPrecision(list(ops or PRECISION_OPS), acc_type or "float16"), PassContext(3, config=config):
            return _applied(passes, mod)
    except TVMError as error:
        raise TVMCException(f"the graph cannot be converted to mixed precision: {error}") from None


def convert_graph_layout(
    mod: Any, desired_layouts: str | Sequence[str], ops: Sequence[str] | None = None
) -> Any:
    """A graph with some operators in other layouts: one for all, or one for each; `NHWC:HWIO` has that of kernels."""
    layouts = [desired_layouts] if isinstance(desired_layouts, str) else list(desired_layouts)
    names = list(ops or LAYOUT_OPS)
    if len(layouts) not in (1, len(names)):
        raise TVMCException(
            f"desired_layout has {len(layouts)} layouts for the {len(names)} operators {', '.join(names)}; give one "
            "for all of them, or one for each"
        )
    layouts = layouts * len(names) if len(layouts) == 1 else layouts
    wanted = {}
    for name, layout in zip(names, layouts, strict=True):
        data, _, kernel = layout.partition(":")
        if not {"N", "C"} <= set(data):
            raise TVMCException(f"desired_layout={layout!r}: it is a layout such as NCHW, NHWC or NHWC:HWIO")
        wanted[name] = [data, kernel or "default"]
    passes = [
        relay.transform.RemoveUnusedFunctions(),
        relay.transform.ConvertLayout(wanted),
        relay.transform.FoldConstant(),
    ]
    try:
        return _applied(passes, mod)
    except (TVMError, ValueError) as error:
        raise TVMCException(f"desired_layout={layouts}: {error}") from None


def _applied(passes: Sequence[Any], mod: Any) -> Any:
    """Run passes one by one: a Sequential would leave out those above the level of the context."""
    for each in passes:
        mod = each(mod)
    return mod


def apply_graph_transforms(mod: Any, args: Mapping[str, Any] | None) -> Any:
    """A graph in the layouts and the precision of some arguments, as of `parse_graph_transform_args`."""
    args = args or {}
    if args.get("desired_layout"):
        mod = convert_graph_layout(mod, args["desired_layout"], args.get("desired_layout_ops"))
    if args.get("mixed_precision"):
        mod = convert_to_mixed_precision(
            mod,
            args.get("mixed_precision_ops"),
            args.get("mixed_precision_calculation_type"),
            args.get("mixed_precision_acc_type"),
        )
    return mod


def parse_graph_transform_args(args: Any) -> dict[str, Any]:
    """The arguments about graphs among others, of a table or an object."""
    given = args if isinstance(args, Mapping) else vars(args)
    return {name: given.get(name) for name in _ARGS}
