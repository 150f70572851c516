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


@pytest.fixture
def old_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """This machine is said to have vectors of 128 bits."""
    monkeypatch.setattr(cpu_flags, "own_flags", lambda: {"sse2"})


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
    intel = "flags : sse2 avx2 avx512f avx512bw avx512_vnni"
    named = Target({"kind": "llvm", "mcpu": "cascadelake", "mtriple": "x86_64-linux-gnu"})
    assert features_beyond(named, intel, lambda: False) == ()
    assert Machine.of({"mcpu": "cascadelake", "mtriple": "x86_64-linux-gnu"}).has(GATHERS)


@pytest.mark.usefixtures("old_cpu")
def test_code_of_another_cpu_is_refused() -> None:
    with pytest.raises(CompilationError, match=r"uses avx2, which this machine's CPU lacks; compile for this machine"):
        TvmRunner(AVX2).prepare(doubling())
    given = TensorQuantization("x", (1, 4), "int8", 1.0, 0, -64, 63)
    made = TensorQuantization("y", (1, 4), "int32", 1.0, 0, -128, 126)
    module = compile_model(doubling(), [given], [made], None, "0" * 64, AVX2)
    with pytest.raises(CompilationError, match=r"uses avx2, which this machine's CPU lacks; compile for this machine"):
        module.run_integer({"x": np.zeros((1, 4), np.int8)})
