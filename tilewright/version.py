"""The version of the package: pyproject.toml reads it here."""

__version__ = "0.2.0"
VERSION = f"tilewright {__version__}"  # in what it writes, and in the keys of what it keeps
