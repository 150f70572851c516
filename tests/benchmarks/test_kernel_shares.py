"""Shares of the peak: how calls are added up and counted, and one network from end to end."""

from __future__ import annotations

import sys

import pytest
from loaded import load_benchmark
from small_onnx import CONVOLUTIONS, save_small_network

from mrt.backend.machine import Machine
from mrt.symbol import GraphBuilder, TensorType, find_operator

kernel_shares = load_benchmark("kernel_shares")


def test_calls_alike_are_added_up() -> None:
    call = kernel_shares.Measured("Convolution", (1, 8), 100, 0.5, 0.25)
    other = kernel_shares.Measured("Convolution", (1, 9), 100, 0.25, 0.125)
    assert kernel_shares.together([call, other, call]) == [
        kernel_shares.Measured("Convolution", (1, 8), 200, 1.0, 0.5, 2),
        kernel_shares.Measured("Convolution", (1, 9), 100, 0.25, 0.125, 1),
    ]


def test_every_output_takes_a_multiplication_for_each_of_its_weights() -> None:
    builder = GraphBuilder()
    data = builder.input("x", TensorType((2, 8, 5, 5), "int8"))
    weight = builder.input("w", TensorType((6, 4, 3, 2), "int8"))
    operator = find_operator("Convolution")(kernel=(3, 2), num_filter=6, num_group=2, no_bias=True)
    symbol = builder.apply(operator, [data, weight])
    assert symbol.shape == (2, 6, 3, 4)
    assert kernel_shares.multiplications(symbol) == (2 * 6 * 3 * 4) * (4 * 3 * 2)
    left, right = (
        builder.input(name, TensorType(shape, "int8")) for name, shape in (("a", (2, 7, 3)), ("b", (2, 5, 7)))
    )
    product = builder.apply(find_operator("batch_dot")(transpose_a=True, transpose_b=True), [left, right])
    assert kernel_shares.multiplications(product) == 2 * 3 * 5 * 7
    relu = builder.apply(find_operator("relu")(), [symbol])
    assert kernel_shares.multiplications(relu) == 0
    assert kernel_shares.described([symbol, relu]) == "Convolution 6x4x3x2 and 1 more"
    assert kernel_shares.described([relu]) == "relu"


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """A network, and a folder for what is made of it, once for all ways in which it is measured."""
    folder = tmp_path_factory.mktemp("shares")
    network = save_small_network(folder / "small.onnx")
    return ["--models", str(network), "--runs", "2", "--work", str(folder / "work")]


@pytest.mark.exhaustive
@pytest.mark.skipif(not Machine.of().has("avx2"), reason="this machine has no AVX2")
@pytest.mark.parametrize("options", [["--isa", "native"], ["--isa", "avx2"], ["--float"]], ids=" ".join)
def test_a_network_reaches_a_part_of_the_peak(
    options: list[str], given: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["kernel_shares.py", *given, *options])
    kernel_shares.main()
    told = capsys.readouterr().out.splitlines()
    rows = [line.split(" | ") for line in told if line.startswith("| Convolution")]
    assert len(rows) == CONVOLUTIONS
    # Where another program runs, a peak that is measured may fall short of what is reached later.
    shares = [int(row[-1].rstrip(" |").rstrip("%")) for row in rows]
    assert 0 < max(shares) <= 200
