"""The operator inventory. It is not there yet: its names can be imported, and say so when they are used."""

from .._later import announce

__getattr__ = announce(
    __name__,
    "the operator inventory is not there yet; write the operator with te.compute",
    [
        "arm_cpu",
        "arm_cpu.dense_alter_op",
        "arm_cpu.matmul",
        "bifrost",
        "broadcast",
        "cuda",
        "cuda.conv3d_winograd",
        "generic",
        "image",
        "mali",
        "math",
        "nn",
        "nn.conv2d",
        "nn.pooling",
        "nn.qnn",
        "nn.utils",
        "reduction",
        "sparse",
        "sparse.utils",
        "tag",
        "testing",
        "transform",
        "utils",
        "vision",
        "x86",
        "x86.conv2d_avx_common",
        "x86.dense_alter_op",
    ],
)
