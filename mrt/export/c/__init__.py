"""The C exporter: an integer graph as C99 for chips without a floating-point unit, kernels lowered by TVM."""

from mrt.export.c.source import EXAMPLE, CSource, sizes_in, to_c

__all__ = ["EXAMPLE", "CSource", "sizes_in", "to_c"]
