"""Tools around the compiler: compilers of the system, temporary folders, downloads, worker processes."""

from ..absent import attributes as _attributes
from ..homes import lazily as _lazily

# The classic loads them with relay, so programs use them without an import of their own.
__getattr__ = _lazily(__name__, {}, "debugger graph_executor sparse utils", _attributes(__name__))
