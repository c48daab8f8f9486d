"""Tools around the compiler: compilers of the system, temporary folders, downloads, worker processes."""

from .._later import announce as _announce

# Programs import these at their top, and many go on without them.
_announce(
    __name__,
    "the libraries of others are not called yet: an operator is compiled here for every target; "
    "take that of topi or relay, and let tilewright schedule it",
    [
        "cblas",
        "cublas",
        "cublaslt",
        "cutlass",
        "dnnl",
        "hipblas",
        "mkl",
        "nnpack",
        "rocblas",
        "tensorrt",
        "thrust",
    ],
)
_announce(
    __name__,
    "this tool is not there yet; see the page Coming from TVM for what there is",
    ["coreml_runtime", "emcc", "hexagon", "peak", "pipeline_executor", "random", "sort", "sparse", "xcode"],
)
