"""Local memory of kernels on the stack, where LLVM makes registers of it.

TVM keeps less than 1 KiB there and asks its workspace for more at each use. Accumulators that fill all registers are
twice as long.
"""

from __future__ import annotations

import math
from typing import Any

import tvm
from tvm import tirx
from tvm.s_tir import transform as schedules
from tvm.tirx import compilation_pipeline
from tvm.tirx import transform as passes

from mrt.backend.link.calls import on_cpu
from mrt.backend.link.rolled_loops import with_rolled_loops
from mrt.backend.tir.statements import around

KERNELS = "mrt"
"""The name of the pipeline that lowers kernels: what TVM's own does with those for a CPU, and then local memory."""
STACK_BYTES = 6 << 10
"""Of what is kept on the stack: the largest window that Winograd's transforms hold, 9 x 9 of the longest vectors."""
KEPT = {"disable_lower_builtin": tirx.IntImm("int32", 1)}
"""TVM's mark of memory that it shall not ask its workspace for."""


LOWERING = (
    schedules.CanonicalizeLoop,
    schedules.LowerInitBlock,
    schedules.PlanAndUpdateBufferAllocationLocation,
    schedules.ConvertBlocksToOpaque,
    schedules.CompactBufferAllocation,
    schedules.LowerMatchBuffer,
    schedules.StmtSimplify,
    schedules.LowerOpaqueBlock,
    passes.FlattenBuffer,
    schedules.LoopPartition,
    lambda: passes.VectorizeLoop(True),
    passes.StorageRewrite,
    passes.UnrollLoop,
    schedules.RenormalizeSplitPattern,
    passes.StmtSimplify,
    schedules.RewriteUnsafeSelect,
    passes.SplitHostDevice,
    passes.MakePackedAPI,
    passes.BF16StorageLegalize,
)
"""TVM's own passes in its order, but for those on what no kernel has: threads, shared memory and copies of GPUs, floats
of 8 and of 16 bits, indices of 64 bits; for what LLVM does by itself, as to compute common subexpressions once; and for
the entry of a module, a second function that would unpack the arguments of its only kernel. Each goes through the whole
function. The last one orders declarations."""


def _pipeline() -> Any:
    _, host, device = compilation_pipeline.get_tir_pipeline("s_tir")
    roll = tirx.transform.prim_func_pass(lambda function, *_: with_rolled_loops(function), opt_level=0, name="mrt.Roll")
    lowered = tvm.transform.Sequential([made() for made in LOWERING])
    keep = tirx.transform.prim_func_pass(lambda function, *_: _kept_in(function), opt_level=0, name="mrt.KeepOnStack")
    place = tirx.transform.prim_func_pass(lambda function, *_: on_cpu(function), opt_level=0, name="mrt.Place")
    return tvm.transform.Sequential([roll, lowered, keep, place]), host, device


compilation_pipeline.register_tir_pipeline(KERNELS, _pipeline)


def _kept_in(function: Any) -> Any:
    return function.with_body(_kept(function.body) or function.body)


def _kept(root: Any) -> Any:
    """The statement with all local memory of up to STACK_BYTES marked, None where it has none.

    Statements are nested as deep as a function has arguments, so that nothing recurses.
    """
    frames: list[tuple[Any, list[Any], list[Any]]] = [(root, _parts(root), [])]
    while True:
        statement, parts, done = frames[-1]
        if len(done) < len(parts):
            part = parts[len(done)]
            frames.append((part, _parts(part), []))
            continue
        frames.pop()
        made = _of_parts(statement, parts, done)
        if not frames:
            return made
        frames[-1][2].append(made)


def _parts(statement: Any) -> list[Any]:
    """The statements of which one is made, as far as there may be local memory in them."""
    if isinstance(statement, tirx.SeqStmt):
        return list(statement.seq)
    return [statement.body] if isinstance(statement, (tirx.AttrStmt, tirx.For)) else []


def _of_parts(statement: Any, parts: list[Any], kept: list[Any]) -> Any:
    """What `_kept` gives for a statement, of what it gave for its parts."""
    if isinstance(statement, tirx.AllocBuffer):
        fits = _bytes(statement.buffer) <= STACK_BYTES
        return tirx.AllocBuffer(statement.buffer, {**statement.annotations, **KEPT}) if fits else None
    if not any(kept):
        return None
    if isinstance(statement, tirx.SeqStmt):
        return tirx.SeqStmt([new or old for new, old in zip(kept, parts, strict=True)])
    return around(statement, kept[0])


def _bytes(buffer: Any) -> int:
    """The size of a buffer; of one whose shape is not known, more than any."""
    if not all(isinstance(length, tirx.IntImm) for length in buffer.shape):
        return STACK_BYTES + 1
    return math.prod(int(length) for length in buffer.shape) * int(buffer.dtype.itemsize)
