"""Tools around the compiler: compilers of the system, temporary folders, downloads, worker processes."""

from ..absent import attributes as _attributes

__getattr__ = _attributes(__name__)
