"""Tools around the compiler: compilers of the system, temporary folders, downloads, worker processes."""

from ..absent import attributes as _attributes
from ..homes import lazily as _lazily

# The classic loads some of them with relay, so programs use them without an import of their own.
__getattr__ = _lazily(
    __name__,
    {},
    "cc clang cuda_graph cudnn debugger dlpack download graph_executor ndk nvcc onnx_backend peak pickle_memoize "
    "pipeline_executor pipeline_executor_build popen_pool relay_viz sparse tar target utils",
    _attributes(__name__),
)
