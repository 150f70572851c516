"""A shared library with an interface in C, of the kernels of a compiled module: it needs neither TVM nor Python."""

from mrt.export.library.files import to_library

__all__ = ["to_library"]
