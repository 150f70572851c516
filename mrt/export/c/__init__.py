"""The C exporter: an integer graph as C99 for chips without a floating-point unit, kernels lowered by TVM."""

from mrt.export.c.source import CSource, sizes_in, to_c

__all__ = ["CSource", "sizes_in", "to_c"]
