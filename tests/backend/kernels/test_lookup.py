"""Look-ups of vectors of any number of lanes: by gathers where they divide by these, and the entries of the table."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import s_tir, te, tirx

from mrt.backend.kernels.x86.avx512.lookup import LANES, gathers, looked_up
from mrt.backend.machine import Machine

TABLE, COUNT = 300, 192
WITH_GATHERS = {"mcpu": "icelake-server", "mtriple": "x86_64-linux-gnu"}


def built(lanes: int, target: object) -> object:
    table, places = te.placeholder((TABLE,), "int32", "table"), te.placeholder((COUNT,), "int32", "places")
    found = te.compute((COUNT,), lambda i: looked_up(table, places[i]), name="found")
    plan = s_tir.Schedule(te.create_prim_func([table, places, found]))
    (loop,) = plan.get_loops(plan.get_sblock("found"))
    plan.vectorize(plan.split(loop, [None, lanes])[1])
    return tirx.build(plan.mod, target)


@pytest.mark.parametrize("lanes", [16, 32, 64])
def test_vectors_are_gathered_whole(lanes: int) -> None:
    code = built(lanes, Machine.of(WITH_GATHERS).target).inspect_source("asm")
    assert code.count("vpgatherdd") >= lanes // LANES
    assert "pinsrd" not in code  # which puts a single element into a vector


@pytest.mark.parametrize("lanes", [8, 16, 32, 64, 96])
def test_each_lane_holds_its_own_entry(lanes: int) -> None:
    machine = Machine.of()
    if not gathers(machine):
        pytest.skip("this machine lacks AVX-512")
    random = np.random.default_rng(lanes)
    table, places = random.integers(-(2**31), 2**31, TABLE).astype("int32"), random.integers(0, TABLE, COUNT)
    found = tvm.runtime.tensor(np.zeros(COUNT, "int32"))
    run = built(lanes, machine.target)["main"]
    run(tvm.runtime.tensor(table), tvm.runtime.tensor(places.astype("int32")), found)
    np.testing.assert_array_equal(found.numpy(), table[places])
