"""Integers are the same on every CPU; wrong targets are named."""

from __future__ import annotations

import json

import numpy as np
import pytest
from compiled import Bundle
from networks import IntegerNetwork

from mrt.backend import TvmRunner
from mrt.backend.machine import Machine
from mrt.errors import CompilationError


@pytest.mark.parametrize(
    "target", [{"kind": "llvm", "mcpu": "x86-64"}, '{"kind": "llvm", "mcpu": "x86-64-v3"}', "llvm"]
)
def test_a_network_gives_the_same_integers_for_every_target(target: str) -> None:
    network = IntegerNetwork(batch=2)
    feeds = {"image": network.inputs[0].quantize(network.images(2))}
    found = TvmRunner(target).prepare(network.graph)(feeds)
    for a, b in zip(found, network.graph.evaluate(feeds), strict=True):
        np.testing.assert_array_equal(a, b)
    assert len(np.unique(found[1])) > 50  # not all saturated


def test_shifts_and_ties_are_the_same_on_the_oldest_cpu() -> None:
    bundle = Bundle()
    x = bundle.input(bundle.integers((4, 32), "int32"))
    bundle.add("right_shift", x, bundle.parameter(np.arange(32, dtype=np.int32)))
    ties = bundle.input((np.arange(-40, 40) / 2).astype(np.float32))
    bundle.add("quantize", ties, bundle.parameter(np.ones(1, np.float32)), a_min=-128, a_max=127, dtype="int8")
    bundle.check(runner=TvmRunner({"kind": "llvm", "mcpu": "x86-64"}))


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ({"kind": "llvm", "mcpu": "z80"}, "z80"),
        ({"kind": "nonsense"}, "nonsense"),
        ("{not json", "not json"),
        ({"kind": "c"}, "llvm is needed"),
    ],
)
def test_a_target_that_cannot_be_is_one_clear_line(target: str, said: str) -> None:
    with pytest.raises(CompilationError, match=said) as raised:
        TvmRunner(target).prepare(IntegerNetwork(1).graph)
    assert "\n" not in str(raised.value)


def test_a_machine_states_its_vectors() -> None:
    facts = {cpu: Machine.of(json.dumps({"kind": "llvm", "mcpu": cpu})) for cpu in ("x86-64", "x86-64-v3", "x86-64-v4")}
    assert [(m.vector_bits, m.registers) for m in facts.values()] == [(128, 16), (256, 16), (512, 32)]
