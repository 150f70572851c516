"""The Relax reader: a TVM IRModule of high-level Relax operators into a Graph, one converter per Relax operator."""

from mrt import lean_tvm as _lean_tvm  # before anything that imports TVM
from mrt.frontend.relax.reader import from_relax

del _lean_tvm

__all__ = ["from_relax"]
