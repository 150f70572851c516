"""Modules of Relax that `tvm.compile` compiles by itself, for those who go on with TVM."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import tvm
from tvm import ir, relax
from tvm.target import codegen

from mrt import tvm_errors as _tvm_errors
from mrt.backend.kernels.dot_instructions import needed_features
from mrt.backend.lowering.module import ModuleBuilder
from mrt.backend.machine import TILES, Machine
from mrt.compilation import Target
from mrt.errors import CompilationError
from mrt.symbol import Graph

del _tvm_errors

MADE_FOR = "relax.mrt_made_for"
"""An operator that gives its argument, and is none where the CPU that TVM compiles for has the features it names."""


def build_portable(graph: Graph, name: str = "main", target: Target | None = None) -> tvm.IRModule:
    """A Relax module whose function `name` computes the graph, as that of `build_module`.

    target: the CPU whose instructions are used, but for tiles; by default none that some CPU lacks. `tvm.compile`
    refuses a module of such instructions for a CPU without them, on which LLVM would end the process.
    Raises CompilationError as `build_module`.
    """
    machine = Machine.generic() if target is None else Machine.of(target).without(TILES)
    builder = ModuleBuilder(machine, wrap_results=_made_for(needed_features(machine)))
    builder.add(graph, name)
    return builder.module()


def _made_for(features: tuple[str, ...]) -> Callable[[Any], Any]:
    return partial(_marked, features) if features else lambda results: results


def _marked(features: tuple[str, ...], results: Any) -> Any:
    return relax.Call(ir.Op.get(MADE_FOR), [results, ir.StringImm(",".join(features))])


def _checked(_: Any, call: Any) -> Any:
    """The argument of MADE_FOR; CompilationError naming the features that the CPU lacks."""
    results, features = call.args
    target = tvm.target.Target.current(allow_none=True) or tvm.target.Target("llvm")
    lacking = [each for each in str(features.value).split(",") if not codegen.target_has_features(each, target)]
    if target.kind.name != "llvm" or lacking:
        raise CompilationError(
            f"the module uses instructions of {features.value}, and {target} lacks {', '.join(lacking) or 'LLVM'}; "
            f"compile it for the target that it was made for, or make it for any CPU by to_relax()"
        )
    return results


ir.register_op_attr(MADE_FOR, "FInferType", lambda call, _: call.args[0].ty)
ir.register_op_attr(MADE_FOR, "FLegalize", _checked)
ir.register_op_attr(MADE_FOR, "FPurity", True)
# TVM legalizes no operator of which an argument has no shape, unless it is told to.
ir.register_op_attr(MADE_FOR, "RequiresArgumentShapes", False)
