"""Tensor intrinsics: the loops that TVM looks for and the statements in their place compute the same."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from layers import TARGETS
from stand_ins import standing_in
from tvm import s_tir, tirx

from mrt.backend.kernels.dot_instructions import Dot, choose_dot
from mrt.backend.kernels.dot_intrinsic import intrinsic_of
from mrt.backend.kernels.generic.crossed_dot import PAIRS, crossed_intrinsic, intrinsic_of_pairs
from mrt.backend.kernels.generic.interleave_rows import interleaving
from mrt.backend.kernels.generic.turned_rows import turning
from mrt.backend.kernels.pairs_of_products import Pairs
from mrt.backend.machine import Machine
from mrt.symbol import Array, Interval
from mrt.symbol.bounds import DTYPE_RANGES

WEIGHTS = (7, 63, 127, 300)
"""The largest of a layer, which decides what multiplies."""


def dots(cpu: str) -> list[Dot]:
    """Those of a CPU that have an instruction, each once."""
    machine, found = Machine.of(TARGETS[cpu]), {}
    for data in ("uint8", "int8", "int16"):
        for most in WEIGHTS:
            weight = np.full((64, 8), most, np.int8 if most < 128 else np.int16)
            pairs = Pairs(Interval.of(*DTYPE_RANGES[data], (1, 8))) if most < 128 else None
            dot = choose_dot(data, weight, "int32", machine, pairs)
            if dot.instruction:
                found[intrinsic_of(dot)] = dot
    return list(found.values())


def names(dot: Dot) -> list[str]:
    """Of the intrinsics that a dot has."""
    found = [intrinsic_of(dot), interleaving(dot), turning(dot)]
    if dot.formed_by is not None and dot.formed_by.widens:
        found.append(intrinsic_of(dot, 4))
    if dot.formed_by is not None and dot.formed_by.crosses:
        found += [crossed_intrinsic(dot), *(intrinsic_of_pairs(steps, dot) for steps in PAIRS)]
    return found


def result(function: tirx.PrimFunc, arrays: list[Array], machine: Machine) -> Array:
    """What a function makes of the last array."""
    held = [tvm.runtime.tensor(array) for array in arrays]
    module = tvm.IRModule({"main": function.with_attr("global_symbol", "main")})
    with standing_in(machine):
        tirx.build(module, machine.target)["main"](*held)
    return np.asarray(held[-1].numpy())


@pytest.mark.parametrize("cpu", TARGETS)
def test_instructions_do_what_the_loops_do(cpu: str) -> None:
    machine = Machine.of(TARGETS[cpu])
    rng = np.random.default_rng(0)
    for dot in dots(cpu):
        for name in names(dot):
            intrinsic = s_tir.TensorIntrin.get(name)
            types = [parameter.ty for parameter in intrinsic.desc.params]
            least = [0 if str(type.dtype).startswith("u") else -63 for type in types]
            arrays = [
                rng.integers(low, 63, [int(n) for n in type.shape]).astype(str(type.dtype))
                for low, type in zip(least, types, strict=True)
            ]
            expected, found = (result(each, arrays, machine) for each in (intrinsic.desc, intrinsic.impl))
            assert expected.any(), name
            np.testing.assert_array_equal(found, expected, name)
