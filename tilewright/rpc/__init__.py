"""Running on other machines. It is not there yet: its names can be imported, and say so when used."""

from .._later import announce

__getattr__ = announce(
    __name__,
    "running on other machines is not there yet; export_library for their triple and copy the file",
    ["client", "proxy", "server", "tracker"],
)
