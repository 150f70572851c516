"""The backend: graphs compiled by TVM for a CPU. One TE compute per operator, one PrimFunc per region."""

from mrt.backend import computes as _computes
from mrt.backend.build import compile_model
from mrt.backend.compute import Kind, compute, packing
from mrt.backend.emit import build_module
from mrt.backend.runner import TvmRunner

del _computes

__all__ = ["Kind", "TvmRunner", "build_module", "compile_model", "compute", "packing"]
