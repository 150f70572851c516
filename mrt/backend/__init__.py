"""The back end: graphs compiled by TVM for a CPU. One TE compute per operator, one PrimFunc per region.

What happens to a graph, room by room:

    rewrites    graph → graph: the same integers by operators that compile to less
    fusion      operators → regions, each of which becomes one function
    layout      which order in memory every tensor has, and over which dying tensor a result is written
    lowering    graph → calls, region → PrimFunc, PrimFunc → scheduled PrimFunc, calls → Relax module
    link        all calls as one function on one workspace; kernels → machine code
    tuning      tilings measured on the device that code is for, and the fastest chosen

What these are built on, each on those below it only:

    computes    an operator as a tensor expression
    kernels     sums of products by the instructions of each family of CPUs, and passes on scheduled functions
    schedule    loops: which are parallel, vectorized, tiled, and what a choice costs
    te          the registry of computes, and what they are written with
    memory      how one tensor lies: innermost axis, padding, border, alignment
    tir         expressions and statements of TIR
    operators   operators that only the rewrites make
    machine.py  the CPU

On top are job.py (a model that is to be compiled, checked), build.py (a module to be saved), kept_modules.py (modules
that were compiled before), native.py (code that needs no TVM), runner.py (a graph to be run), portable.py (a module for
TVM), batches.py (how many samples at once), explain.py (what a graph is compiled to, for people) and devices.py (which
CPU a device has).

Plug-ins register the computes of their operators with `compute`, and write them with `elementwise` and `inlined`.
"""

from mrt import lean_tvm as _lean_tvm  # before anything that imports TVM
from mrt.backend import computes as _computes
from mrt.backend.batches import plan_batch
from mrt.backend.build import compile_model
from mrt.backend.explain import compiled_text, explain
from mrt.backend.job import Job
from mrt.backend.link.kernel_cache import KernelCache
from mrt.backend.lowering.module import build_module
from mrt.backend.native import NativeCode, NativeFunction, compile_native
from mrt.backend.portable import build_portable
from mrt.backend.runner import ONE_THREAD, TvmRunner
from mrt.backend.te.registry import Kind, compute
from mrt.backend.te.stages import elementwise, inlined

del _computes, _lean_tvm

__all__ = [
    "ONE_THREAD",
    "Job",
    "KernelCache",
    "Kind",
    "NativeCode",
    "NativeFunction",
    "TvmRunner",
    "build_module",
    "build_portable",
    "compile_model",
    "compile_native",
    "compiled_text",
    "compute",
    "elementwise",
    "explain",
    "inlined",
    "plan_batch",
]
