"""What Linux says of a CPU, and that code which it does not run is refused before it ends the process."""

from __future__ import annotations

import numpy as np
import pytest
from tvm.target import Target

from mrt import cpu_flags
from mrt.backend import TvmRunner, compile_model
from mrt.backend.machine import GATHERS, Machine, features_beyond
from mrt.cpu_flags import check_runs_here, flags_of, is_flagged
from mrt.errors import CompilationError
from mrt.symbol import Graph, GraphBuilder, TensorType, find_operator
from mrt.symbol.quantized_tensor import TensorQuantization

AVX2 = {"mcpu": "x86-64-v3"}
"""A CPU that most machines have all instructions of."""
FLAGS = "flags : sse2 pni ssse3 sse4_1 sse4_2 popcnt avx fma f16c abm bmi1 bmi2 movbe avx2"
"""What Linux says of it."""


@pytest.fixture(params=["avx2", "fma"])
def lacking(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """What this machine is said to lack: vectors that kernels use; an instruction that LLVM makes of two."""
    monkeypatch.setattr(cpu_flags, "own_flags", lambda: flags_of(FLAGS) - {request.param})
    return request.param


def doubling() -> Graph:
    builder = GraphBuilder()
    x = builder.input("x", TensorType((1, 4), "int8"))
    return builder.graph([builder.apply(find_operator("broadcast_add")(), [x, x], "y")])  # int32


def test_features_have_the_names_of_linux() -> None:
    arm = flags_of("processor : 0\nFeatures : fp asimd asimddp\n")
    intel = flags_of("model name : flags\nflags\t\t: sse2 avx512_vnni amx_int8\n")
    assert is_flagged("neon", arm) and is_flagged("dotprod", arm) and not is_flagged("sse2", arm)
    assert is_flagged("avx512vnni", intel) and is_flagged("amx-int8", intel) and not is_flagged("avx2", intel)
    assert flags_of("model name : a CPU\n") == set()


def test_nothing_is_refused_where_nobody_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu_flags, "own_flags", set)
    check_runs_here(["avx2"])


def test_what_linux_has_no_flag_for_is_as_llvm_knows_it() -> None:
    """Linux does not say whether gathers are fast."""
    intel = f"{FLAGS} avx512f avx512bw avx512cd avx512dq avx512vl avx512_vnni"
    named = Target({"kind": "llvm", "mcpu": "cascadelake", "mtriple": "x86_64-linux-gnu"})
    assert features_beyond(named, intel, lambda: False) == ()
    assert Machine.of({"mcpu": "cascadelake", "mtriple": "x86_64-linux-gnu"}).has(GATHERS)


def test_what_a_virtual_machine_hides_is_not_used() -> None:
    """Neither vectors that kernels ask for nor what LLVM uses of its own accord."""
    named = Target({"kind": "llvm", "mcpu": "x86-64-v3", "mtriple": "x86_64-linux-gnu"})
    assert features_beyond(named, FLAGS, lambda: False) == ()
    hidden = FLAGS.replace(" bmi2", "").replace(" pni", "")
    assert features_beyond(named, hidden, lambda: False) == ("-sse3", "-bmi2")
    assert features_beyond(named, f"{FLAGS} avx512_vnni gfni", lambda: False) == ("+avx512vnni",)  # kernels ask for it
    target = {"mcpu": "x86-64-v3", "mtriple": "x86_64-linux-gnu"}
    for each in ("fma", "f16c", "bmi", "bmi2", "lzcnt", "movbe", "popcnt"):
        assert each in Machine.of(target).needs
        assert each not in Machine.of({**target, "features": [f"-{each}"]}).needs


def test_code_of_another_cpu_is_refused(lacking: str) -> None:
    said = f"uses {lacking}, which this machine's CPU lacks; compile for this machine"
    with pytest.raises(CompilationError, match=said):
        TvmRunner(AVX2).prepare(doubling())
    given = TensorQuantization("x", (1, 4), "int8", 1.0, 0, -64, 63)
    made = TensorQuantization("y", (1, 4), "int32", 1.0, 0, -128, 126)
    module = compile_model(doubling(), [given], [made], None, "0" * 64, AVX2)
    with pytest.raises(CompilationError, match=said):
        module.run_integer({"x": np.zeros((1, 4), np.int8)})
