"""Integers are the same on every CPU; wrong targets are named."""

from __future__ import annotations

import json

import numpy as np
import pytest
from compiled import Bundle
from networks import IntegerNetwork
from tvm.target import codegen

from mrt.backend import TvmRunner, build_module
from mrt.backend.kernels.dot_instructions import DOTS, dots_of
from mrt.backend.machine import FEATURES, Machine
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
    scale, zero_point = bundle.parameter(np.ones(1, np.float32)), bundle.parameter(np.array(0, np.int8))
    bundle.add("quantize", ties, scale, zero_point, a_min=-128, a_max=127, dtype="int8")
    bundle.check(runner=TvmRunner({"kind": "llvm", "mcpu": "x86-64"}))


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ({"kind": "llvm", "mcpu": "z80"}, "LLVM knows no such CPU"),
        ({"kind": "nonsense"}, "nonsense"),
        ("{not json", "not json"),
        ("amd", "native, or a mapping of the keys"),
        ({"kind": "c"}, "kind is 'c': input should be 'llvm'"),
        (
            {"mcpu": "x86-64", "num-cores": 2},
            r"num-cores is not a key \(found 2\); the keys here are kind, mcpu, mt",
        ),
        ({"features": ["nonsense"]}, "no such feature"),
        ({"features": ["-nonsense"]}, "no such feature"),
        ({"features": "avx2"}, "features is 'avx2'"),
        ({"threads": 0}, "threads is 0"),
        ({"mtriple": "nonsense"}, "mtriple is nonsense"),
        ({"mtriple": "riscv64-linux-gnu", "mcpu": "native"}, "name a CPU of it"),
        ({"mtriple": "x86_64-linux-gnu", "mcpu": "i686"}, "a CPU of 32 bits"),
        ({"mtriple": "x86_64-linux-gnu", "features": ["-64bit"]}, "a CPU of 32 bits"),
    ],
)
def test_a_target_that_cannot_be_is_one_clear_line(target: str, said: str) -> None:
    with pytest.raises(CompilationError, match=said) as raised:
        TvmRunner(target).prepare(IntegerNetwork(1).graph)
    assert "\n" not in str(raised.value)


def byte_dot(target: dict[str, object]) -> str:
    """The instruction that multiplies any bytes on a machine."""
    found = (each.llvm for each in dots_of(Machine.of(target)) if each.weight == "int8" and not each.widens)
    return next(found, "")


def test_a_machine_looks_for_all_features_of_its_dots() -> None:
    assert {name for each in DOTS for name in each.features} <= set(FEATURES)


def test_a_machine_states_its_vectors() -> None:
    facts = {cpu: Machine.of(json.dumps({"kind": "llvm", "mcpu": cpu})) for cpu in ("x86-64", "x86-64-v3", "x86-64-v4")}
    assert [(m.vector_bits, m.registers) for m in facts.values()] == [(128, 16), (256, 16), (512, 32)]


def test_features_add_to_a_cpu_and_take_from_it() -> None:
    plain, more = {"mcpu": "x86-64-v4"}, {"mcpu": "x86-64-v4", "features": ["avx512vnni"]}
    assert byte_dot(plain) == ""
    assert byte_dot(more) == "llvm.x86.avx512.vpdpbusd.512"
    without = {"mcpu": "cascadelake", "features": ["-avx512vnni", "-avx512f"]}
    assert (Machine.of(without).vector_bits, byte_dot(without)) == (256, "")
    # Words in 512 bits, which such kernels scale sums in, are not AVX512-VNNI's.
    no_words = {"mcpu": "x86-64-v3", "features": ["avx512vnni"]}
    assert (Machine.of(no_words).vector_bits, byte_dot(no_words)) == (512, "")
    arm = {"mtriple": "aarch64-linux-gnu", "features": ["+dotprod"]}
    assert byte_dot(arm) == "llvm.aarch64.neon.sdot"


def test_this_machine_has_the_features_that_linux_says() -> None:
    """A virtual machine may have less than the CPU that it is named by, and a new CPU more than one that LLVM knows."""
    flags: set[str] = set()
    with open("/proc/cpuinfo", encoding="ascii", errors="replace") as file:
        for line in file:
            if line.startswith("flags"):
                flags = set(line.split(":")[1].split())
    if not flags:
        pytest.skip("this system does not say what its CPU has")
    target = Machine.of("native").target
    for feature, flag in {"avx512vnni": "avx512_vnni", "avxvnni": "avx_vnni", "avx2": "avx2", "sse2": "sse2"}.items():
        assert bool(codegen.target_has_features(feature, target)) == (flag in flags), feature


def test_what_runs_a_few_times_is_compiled_quickly_for_one_core() -> None:
    """Loops that threads share would be slower by it; what is compiled for good keeps LLVM's third level."""

    def level(machine: Machine) -> object:
        return machine.target.export().get("opt-level")

    alone, shared = (Machine.of({"mcpu": "cascadelake", "threads": threads}) for threads in (1, 2))
    assert level(alone.compiling_quickly()) == 2
    assert level(alone) is None
    assert shared.compiling_quickly() == shared


def test_code_for_one_thread_starts_none() -> None:
    network = IntegerNetwork(batch=16)
    loops = {}
    for threads in (1, 2):
        target = {"threads": threads}
        text = str(build_module(network.graph, target=target))
        loops[threads] = text.count("T.parallel")
        assert threads == 2 or "_fused" not in text
        feeds = {"image": network.inputs[0].quantize(network.images(16))}
        for a, b in zip(TvmRunner(target).prepare(network.graph)(feeds), network.graph.evaluate(feeds), strict=True):
            np.testing.assert_array_equal(a, b)
    assert loops[1] == 0 < loops[2]


def test_threads_share_no_loop_that_takes_less_time_than_to_share_it() -> None:
    target = {"mcpu": "cascadelake", "threads": 2}
    loops = [str(build_module(IntegerNetwork(batch).graph, target=target)) for batch in (1, 16)]
    few, many = (text.count("T.parallel") for text in loops)
    assert few == 0 < many


@pytest.mark.parametrize(
    ("shape", "attributes"),
    [
        ((1, 1, 256, 256), {"kernel": (4, 1), "stride": (2, 1), "pad": (1, 0)}),
        ((3, 32, 48, 33), {"kernel": (2, 1), "stride": (3, 3), "pad": (1, 2)}),
    ],
    ids=["one sample", "several"],
)
def test_places_in_a_loop_that_threads_share_are_those_of_its_axes(shape: tuple[int, ...], attributes: dict) -> None:
    """Of a deconvolution place // stride and place mod stride are read, whose place is what is left of a fused loop,
    and 1."""
    bundle = Bundle()
    data = bundle.input(bundle.integers(shape))
    weight = bundle.parameter(bundle.integers((shape[1], 8, *attributes["kernel"])))
    bundle.add("Deconvolution", data, weight, num_filter=8, **attributes)
    assert "T.parallel" in str(build_module(bundle.graph(), target={"threads": 2}))
    bundle.check(runner=TvmRunner({"threads": 2}))
