"""The backend: graphs compiled by TVM for a CPU. One TE compute per operator, one PrimFunc per region.

Plug-ins register the computes of their operators with `compute`, and write them with `elementwise` and `inlined`.
"""

from mrt.backend import computes as _computes
from mrt.backend.batches import plan_batch
from mrt.backend.build import compile_model
from mrt.backend.explain import compiled_text, explain
from mrt.backend.lowering.graph import build_module
from mrt.backend.portable import build_portable
from mrt.backend.runner import ONE_THREAD, TvmRunner
from mrt.backend.te.registry import Kind, compute
from mrt.backend.te.stages import elementwise, inlined

del _computes

__all__ = [
    "ONE_THREAD",
    "Kind",
    "TvmRunner",
    "build_module",
    "build_portable",
    "compile_model",
    "compiled_text",
    "compute",
    "elementwise",
    "explain",
    "inlined",
    "plan_batch",
]
