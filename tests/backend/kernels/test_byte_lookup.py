"""Look-ups of bytes in registers: each family of instructions, every byte, vectors of any number of lanes."""

from __future__ import annotations

import re

import numpy as np
import pytest
import tvm
from stand_ins import standing_in
from tvm import s_tir, te, tirx

from mrt.backend.kernels.x86.byte_lookup import LOOKUPS, ByteLookup, byte_lookup, table_of_bytes
from mrt.backend.link.plain_text import plain_text
from mrt.backend.machine import Machine

COUNT = 768
CODE = {"icelake-server": r"vperm[it]2b", "x86-64-v4": r"vpshufb.*zmm", "x86-64-v3": r"vpshufb.*ymm"}
"""The instruction that picks, by CPU."""


def built(look_up: ByteLookup, lanes: int, target: object) -> object:
    table, places = te.placeholder((512,), "uint8", "table"), te.placeholder((COUNT,), "uint8", "places")
    found = te.compute((COUNT,), lambda i: look_up(table, places[i]), name="found")
    plan = s_tir.Schedule(te.create_prim_func([table, places, found]))
    (loop,) = plan.get_loops(plan.get_sblock("found"))
    plan.vectorize(plan.split(loop, [None, lanes])[1])
    return tirx.build(plan.mod, target)


@pytest.mark.parametrize("lanes", [4, 8, 16, 24, 32, 64, 96, 128])
@pytest.mark.parametrize("look_up", LOOKUPS, ids=lambda each: each.operator)
def test_each_lane_holds_its_own_entry(look_up: ByteLookup, lanes: int) -> None:
    machine = Machine.of({"mcpu": list(CODE)[LOOKUPS.index(look_up)], "mtriple": "x86_64-linux-gnu"})
    assert byte_lookup(machine) is look_up
    random = np.random.default_rng(lanes)
    entries = random.integers(0, 256, 256).astype("uint8")
    places = random.permutation(np.arange(COUNT) % 256).astype("uint8")
    found = tvm.runtime.tensor(np.zeros(COUNT, "uint8"))
    table = table_of_bytes(entries, 0, "uint8")
    with standing_in(machine):
        run = built(look_up, lanes, machine.target)["main"]
    run(tvm.runtime.tensor(table), tvm.runtime.tensor(places), found)
    np.testing.assert_array_equal(found.numpy(), entries[places])


@pytest.mark.parametrize("cpu", CODE)
def test_vectors_are_looked_up_whole(cpu: str) -> None:
    machine = Machine.of({"mcpu": cpu, "mtriple": "x86_64-linux-gnu"})
    look_up = byte_lookup(machine)
    assert look_up is not None
    code = built(look_up, 64, machine.target).inspect_source("asm")
    assert re.search(CODE[cpu], code)
    assert "pinsrb" not in code  # which puts a single byte into a vector


def test_machines_without_such_instructions_read_entries_one_by_one() -> None:
    assert byte_lookup(Machine.of({"mcpu": "x86-64", "mtriple": "x86_64-linux-gnu"})) is None


@pytest.mark.parametrize("look_up", LOOKUPS, ids=lambda each: each.operator)
def test_kernels_with_tables_are_known_again(look_up: ByteLookup) -> None:
    """By the cache, which knows a function by plain data of what it is made of."""
    assert plain_text((look_up,)) is not None


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_a_table_has_an_entry_for_every_byte(dtype: str) -> None:
    table = np.arange(5, 15, dtype=np.int8)
    made = table_of_bytes(table, 3, dtype)[:256].view(np.int8)
    for number in range(*((-128, 128) if dtype == "int8" else (0, 256))):
        assert made[number & 255] == table[min(max(number + 3, 0), 9)]
