"""Tags: the compute pattern of an operator, stored on its stage."""

from __future__ import annotations

# One element from the same element of one operand, of several operands, from one element anywhere.
ELEMWISE = "elemwise"
BROADCAST = "broadcast"
INJECTIVE = "injective"
# Many elements combine into one; with the position of the chosen one.
COMM_REDUCE = "comm_reduce"
COMM_REDUCE_IDX = "comm_reduce_idx"
# Written as statements over buffers.
EXTERN = "extern"
CONV2D_NCHW = "conv2d_nchw"
CONV2D_NHWC = "conv2d_nhwc"
DEPTHWISE_CONV2D_NCHW = "depthwise_conv2d_nchw"


def is_broadcast(tag: str) -> bool:
    """Whether each element depends on the elements at its own index."""
    return tag == ELEMWISE or tag.startswith(BROADCAST)


def is_injective(tag: str) -> bool:
    """Whether each element comes from one element of each operand."""
    return is_broadcast(tag) or tag.startswith(INJECTIVE)
