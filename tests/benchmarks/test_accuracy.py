"""The accuracy benchmark's command line: what is wrong is said before anything is run."""

from __future__ import annotations

import argparse

import numpy as np
import pytest
from loaded import load_benchmark

from mrt.quantization.options import ChannelGranularity, QuantizationConfig
from mrt.symbol import Graph, GraphBuilder, TensorType
from mrt.symbol.operators.activation import Relu
from mrt.symbol.operators.broadcast import BroadcastAdd
from mrt.symbol.operators.convolution import Convolution

accuracy = load_benchmark("accuracy")
PARSER: argparse.ArgumentParser = accuracy._parser()
SHAPES = {"w": (8, 3, 3, 3), "b": (1, 8, 1, 1), "v": (4, 8, 3, 3)}


@pytest.mark.parametrize(
    ("option", "found", "needed"),
    [
        ("--granularity", "0", "layer, auto or a number of channels"),
        ("--granularity", "channel", "layer, auto or a number of channels"),
        ("--granularity", "4/auto", "after a slash: layer or a number"),
        ("--granularity", "4/", "after a slash: layer or a number"),
        ("--granularity", "²", "layer, auto or a number of channels"),
        ("--quantizer", "afine", "symmetric or affine"),
        ("--quantizer", "affine/", "symmetric or affine"),
        ("--bias-correction", "slow", "none, fast or sequential"),
        ("--bits", "1", "from 2 to 16"),
        ("--bits", "17", "from 2 to 16"),
        ("--bits", "8.0", "from 2 to 16"),
        ("--bits", "8/1", "from 2 to 16"),
        ("--parameter-changes", "equalise", "none, equalize, smooth or several, joined by a plus"),
        ("--samples", "0", "from 1 on"),
        ("--seed", "-1", "from 0 on"),
    ],
)
def test_a_wrong_value_is_one_line(option: str, found: str, needed: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        PARSER.parse_args(["net.yaml", f"{option}={found}"])
    assert ended.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert option in line and f"'{found}' was found" in line and needed in line and line.endswith("is needed")


def test_values_are_options_of_the_quantizer() -> None:
    given = ["net.yaml", "--granularity", "16", "auto/2", "--quantizer", "affine/symmetric", "--bits", "2", "16"]
    cases = list(accuracy._cases(PARSER.parse_args(given)))
    assert len(cases) == 2 * 2 * 3
    found = [case.options(QuantizationConfig(weight={"scales": "layer"})) for case in cases]
    assert {(o.activation.bits, o.weight.bits) for o in found} == {(2, 2), (16, 16)}
    assert {(o.activation.quantizer, o.weight.quantizer, o.weight.scales) for o in found} == {
        ("affine", "symmetric", "layer")
    }
    steps = [(o.activation.granularity, o.weight.granularity) for o in found[:6:3]]
    assert steps == [(ChannelGranularity(channel=16), "layer"), ("auto", ChannelGranularity(channel=2))]
    assert [o.bias_correction for o in found[:3]] == ["none", "fast", "sequential"]


def test_widths_of_weights_and_changes_of_parameters() -> None:
    given = ["net.yaml", "--bits", "8/4", "--parameter-changes", "none", "equalize+smooth", "--bias-correction", "none"]
    cases = list(accuracy._cases(PARSER.parse_args([*given, "--granularity", "layer"])))
    found = [case.options(QuantizationConfig()) for case in cases]
    assert [(o.activation.bits, o.weight.bits) for o in found] == [(8, 4)] * 2
    assert [o.parameter_changes for o in found] == [(), ("equalize", "smooth")]
    assert len(cases[0].cells) == len(accuracy.COLUMNS) - 6


def two_convolutions() -> Graph:
    """relu(conv(x) + b) read by a second convolution."""
    random, builder = np.random.default_rng(0), GraphBuilder()
    x = builder.input("x", TensorType((1, 3, 6, 6)))
    w, b, v = (builder.parameter(name, random.normal(size=shape).astype(np.float32)) for name, shape in SHAPES.items())
    first = builder.apply(Convolution(kernel=(3, 3), num_filter=8, no_bias=True), [x, w], "first")
    rectified = builder.apply(Relu(), [builder.apply(BroadcastAdd(), [first, b], "sum")], "rectified")
    return builder.graph([builder.apply(Convolution(kernel=(3, 3), num_filter=4, no_bias=True), [rectified, v], "y")])


def test_rescaled_channels_are_spread_and_the_function_is_the_same() -> None:
    graph = two_convolutions()
    spread = accuracy.rescaled(graph, np.random.default_rng(1))
    x = np.random.default_rng(2).normal(size=(1, 3, 6, 6)).astype(np.float32)
    inner = [each.with_outputs([each.by_name["rectified"]]).evaluate({"x": x})[0] for each in (graph, spread)]
    factors = [np.unique((b[a > 0] / a[a > 0]).round(3)) for a, b in zip(*(i[0] for i in inner), strict=True)]
    assert all(np.ptp(each) < 0.01 * each.max() for each in factors)
    largest = np.array([each.max() for each in factors])
    assert 1 <= largest.min() < largest.max() / 8 <= accuracy.WIDEST / 8
    np.testing.assert_allclose(spread.evaluate({"x": x})[0], graph.evaluate({"x": x})[0], rtol=1e-4, atol=1e-4)
