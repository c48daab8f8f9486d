"""`graph_pack`: the part of a network that the chip computes, in the layout of its memories."""

from __future__ import annotations

from ...relay.expr import Function
from ...relay.transform.infer_type import infer_type
from ...relay.transform.offload import Region, offload
from ..environment import get_env
from ..errors import ConfigError


def graph_pack(
    expr: Function,
    bfactor: int,
    cfactor: int,
    weight_bits: int,
    start_name: str = "nn.max_pool2d",
    stop_name: str = "nn.global_avg_pool2d",
    start_name_idx: int | None = None,
    stop_name_idx: int | None = None,
    count_meta: bool = False,
    device_annot: bool = False,
    annot_start_name: str = "nn.conv2d",
    annot_end_name: str = "annotation.stop_fusion",
) -> Function:
    """A network in which the chip computes what it can between two operators, and the host the rest.

    Packing starts behind the first operator `start_name`, and ends in front of the next `stop_name`; `start_name_idx`
    and `stop_name_idx` are the numbers of these calls, if there are several. `relay.build` for the chip packs all that
    it can by itself, so this is needed only to leave something to the host. Constants are never counted
    (`count_meta`), and each function has its device without annotations (`device_annot`).
    """
    env = get_env()
    wanted = {"bfactor": env.config.batch, "cfactor": env.config.block_out, "weight_bits": env.WGT_WIDTH}
    for name, given in (("bfactor", bfactor), ("cfactor", cfactor), ("weight_bits", weight_bits)):
        if given != wanted[name]:
            raise ConfigError(
                f"graph_pack({name}={given}): the chip of this environment has {wanted[name]}; give that, or compile "
                "within another vta.Environment"
            )
    region = Region(start_name, stop_name, start_name_idx, stop_name_idx)
    with env.target:
        return infer_type(offload(infer_type(expr), region))
