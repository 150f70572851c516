"""Look-ups of vectors of any number of lanes: by gathers, by loads of places that leave a vector by fours, or in
registers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
from stand_ins import standing_in
from tvm import s_tir, te, tirx

from mrt.backend.kernels.x86.avx512.lookup import LANES, gathers, looked_up
from mrt.backend.kernels.x86.avx512.permuted_lookup import permuted, permutes, table_of_vectors
from mrt.backend.kernels.x86.picked_lookup import PLACE, picked, picks
from mrt.backend.machine import Machine

TABLE, COUNT = 300, 192
LINUX = "x86_64-linux-gnu"
WITH_GATHERS = {"mcpu": "icelake-server", "mtriple": LINUX}
SLOW_GATHERS = ({"mcpu": "znver4", "mtriple": LINUX}, {"mcpu": "x86-64-v3", "mtriple": LINUX})


def built(look_up: Any, dtypes: tuple[str, str], lanes: int, target: object, entries: int = TABLE) -> Any:
    """Of `COUNT` places. dtypes: of the table, and of the places."""
    table, places = te.placeholder((entries,), dtypes[0], "table"), te.placeholder((COUNT,), dtypes[1], "places")
    found = te.compute((COUNT,), lambda i: look_up(table, places[i]), name="found")
    plan = s_tir.Schedule(te.create_prim_func([table, places, found]))
    (loop,) = plan.get_loops(plan.get_sblock("found"))
    plan.vectorize(plan.split(loop, [None, lanes])[1])
    return tirx.build(plan.mod, target)


def check(look_up: Any, dtypes: tuple[str, str], lanes: int, machine: Machine) -> None:
    """Each lane holds its own entry."""
    random, limits = np.random.default_rng(lanes), np.iinfo(dtypes[0])
    table = random.integers(limits.min, limits.max, TABLE, endpoint=True).astype(dtypes[0])
    places = random.integers(0, TABLE, COUNT)
    found = tvm.runtime.tensor(np.zeros(COUNT, dtypes[0]))
    with standing_in(machine):
        run = built(look_up, dtypes, lanes, machine.target)["main"]
    run(tvm.runtime.tensor(table), tvm.runtime.tensor(places.astype(dtypes[1])), found)
    np.testing.assert_array_equal(found.numpy(), table[places])


@pytest.mark.parametrize("lanes", [16, 32, 64])
def test_vectors_are_gathered_whole(lanes: int) -> None:
    code = built(looked_up, ("int32", "int32"), lanes, Machine.of(WITH_GATHERS).target).inspect_source("asm")
    assert code.count("vpgatherdd") >= lanes // LANES
    assert "pinsrd" not in code  # which puts a single element into a vector


@pytest.mark.parametrize("lanes", [8, 16, 32, 64, 96])
def test_each_lane_gathers_its_own_entry(lanes: int) -> None:
    machine = Machine.of(WITH_GATHERS)
    assert gathers(machine)
    check(looked_up, ("int32", "int32"), lanes, machine)


@pytest.mark.parametrize("target", SLOW_GATHERS, ids=lambda target: target["mcpu"])
@pytest.mark.parametrize("lanes", [16, 32, 64])
def test_places_leave_a_vector_by_fours(lanes: int, target: dict[str, str]) -> None:
    machine = Machine.of(target)
    code = built(picked, ("int16", PLACE), lanes, machine.target).inspect_source("asm")
    assert picks(machine)
    assert "gather" not in code
    assert code.count("vpinsrw") >= lanes - lanes // 8  # The first one of 8 may be loaded as it is.
    assert code.count("pextrw") < 2  # It takes a single place out of a vector; a helper of TVM's has one.


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "int32"])
@pytest.mark.parametrize("lanes", [2, 4, 8, 16, 32, 64, 96])
def test_each_lane_picks_its_own_entry(lanes: int, dtype: str) -> None:
    check(picked, (dtype, PLACE), lanes, Machine.of())


def test_machines_with_fast_gathers_do_not_pick() -> None:
    assert not picks(Machine.of(WITH_GATHERS))
    assert not picks(Machine.of({"mcpu": "x86-64", "mtriple": LINUX}))


@pytest.mark.parametrize("length", [1, 32, 54, 100, 200, 256])
@pytest.mark.parametrize("lanes", [8, 16, 32])
def test_each_lane_finds_its_own_entry_in_registers(lanes: int, length: int) -> None:
    """Every place of a short table, by the permutations that hold it."""
    random, machine = np.random.default_rng(length), Machine.of(WITH_GATHERS)
    table = random.integers(-(2**31), 2**31, length).astype(np.int32)
    laid, places = table_of_vectors(table), np.resize(np.arange(length, dtype=np.int32), COUNT)
    assert permutes(table, Machine.of(SLOW_GATHERS[0])) and len(laid) in (32, 64, 128, 256)
    given, found = (permuted, ("int32", "int32"), lanes, machine.target, len(laid)), np.zeros(COUNT, np.int32)
    with standing_in(machine):
        made = built(*given)
    held = tvm.runtime.tensor(found)
    for shift in range(0, length, COUNT):
        at = (places + shift) % length
        made["main"](tvm.runtime.tensor(laid), tvm.runtime.tensor(at), held)
        np.testing.assert_array_equal(held.numpy(), table[at])
    code = built(*given).inspect_source("asm")
    assert code.count("vpermi2d") + code.count("vpermt2d") >= (0 if lanes < LANES else lanes // LANES * len(laid) // 32)


def test_long_tables_are_not_held_in_registers() -> None:
    entries = np.zeros(257, np.int32)
    fast, slow = Machine.of(WITH_GATHERS), Machine.of(SLOW_GATHERS[0])
    assert not permutes(entries, slow) and not permutes(entries[:129], fast) and permutes(entries[:128], fast)
    assert not permutes(entries[:8], Machine.of(SLOW_GATHERS[1]))
