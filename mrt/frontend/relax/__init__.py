"""The Relax reader: a TVM IRModule of high-level Relax operators into a Graph, one converter per Relax operator."""

from mrt.frontend.relax.reader import from_relax

__all__ = ["from_relax"]
