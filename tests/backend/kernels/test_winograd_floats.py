"""Float convolutions of 3 x 3 by Winograd's algorithm are nearer to the exact sums than direct ones."""

from __future__ import annotations

import numpy as np
import pytest
from layers import TARGETS

from mrt.backend import TvmRunner
from mrt.backend.explain import explain
from mrt.backend.kernels.generic import winograd_choice
from mrt.backend.kernels.generic.winograd_choice import float_form
from mrt.backend.machine import Machine
from mrt.symbol import Array, Graph, GraphBuilder, Runner, TensorType, find_operator

SIZES = [
    ((1, 32, 8, 8), 32, (1, 1)),
    ((2, 16, 7, 9), 40, (1, 1)),
    ((3, 48, 5, 12), 17, (0, 0)),
    ((1, 64, 14, 6), 3, (2, 0)),
    ((1, 64, 8, 8), 64, (1, 1), 4),
    ((2, 32, 7, 9), 64, (1, 1), 4),
    ((1, 32, 6, 5), 32, (1, 1), 8),
]
"""Shapes of data, output channels and pads, and groups, of whole vectors, of half ones and of such as are merged."""
Case = tuple[tuple[int, ...], int, tuple[int, int]] | tuple[tuple[int, ...], int, tuple[int, int], int]


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is used wherever it can be."""
    monkeypatch.setattr(winograd_choice, "WORTH", float("inf"))


def convolution(case: Case, seed: int = 0) -> tuple[Graph, Array]:
    """One with a bias and a ReLU behind it, and its data, none below 0."""
    (shape, filters, pad), groups = case[:3], case[3] if len(case) > 3 else 1
    random, builder = np.random.default_rng(seed), GraphBuilder()
    x = builder.input("x", TensorType(shape, "float32"))
    weight = random.standard_normal((filters, shape[1] // groups, 3, 3)) / (9 * shape[1] // groups) ** 0.5
    given = [
        x,
        builder.parameter("weight", weight.astype(np.float32)),
        builder.parameter("bias", random.standard_normal(filters).astype(np.float32)),
    ]
    layer = find_operator("Convolution")(num_filter=filters, kernel=(3, 3), pad=pad, num_group=groups)
    made = builder.apply(layer, given, "conv")
    made = builder.apply(find_operator("relu")(), [made], "relu")
    return builder.graph([made]), np.maximum(random.standard_normal(shape), 0).astype(np.float32)


def exact(graph: Graph, data: Array, pad: tuple[int, int]) -> Array:
    """The same in float64."""
    weight, bias = (graph.parameters[name].astype(np.float64) for name in ("weight", "bias"))
    padded = np.pad(data.astype(np.float64), ((0, 0), (0, 0), *((n, n) for n in pad)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))
    groups = data.shape[1] // weight.shape[1]
    parts = zip(np.split(windows, groups, axis=1), np.split(weight, groups), strict=True)
    sums: Array = np.concatenate([np.einsum("nchwyx,ocyx->nohw", *each) for each in parts], axis=1)
    return np.maximum(sums + bias[:, None, None], 0)


def error(found: Array, wanted: Array) -> float:
    return float(np.sqrt(np.mean((found - wanted) ** 2)))


ONE_CORE = {"threads": 1}
"""Of this machine."""


def is_used(graph: Graph) -> bool:
    return any(call.products and "Winograd" in call.products for call in explain(graph, (), ONE_CORE).calls)


@pytest.mark.usefixtures("always")
@pytest.mark.sampled(2)
def test_sums_are_close_to_exact_ones(runner: Runner, turn: int) -> None:
    """Also of lines that are no whole tiles, of several samples, of output channels that fill no vector: every other
    size on each CPU."""
    for case in SIZES[turn % 2 :: 2]:
        graph, data = convolution(case)
        assert is_used(graph)
        wanted = exact(graph, data, case[2])
        assert error(runner.prepare(graph)({"x": data})[0], wanted) < 1e-6 * np.abs(wanted).max(), case


def test_errors_are_no_larger_than_those_of_direct_sums(monkeypatch: pytest.MonkeyPatch) -> None:
    graph, data = convolution(((1, 256, 14, 14), 64, (1, 1)))
    wanted, runner = exact(graph, data, (1, 1)), TvmRunner(ONE_CORE)
    assert is_used(graph)
    by_tiles = error(runner.prepare(graph)({"x": data})[0], wanted)
    monkeypatch.setattr(winograd_choice, "WORTH", 0.0)
    assert not is_used(graph)
    assert 0 < by_tiles <= error(runner.prepare(graph)({"x": data})[0], wanted)


@pytest.mark.usefixtures("always")
def test_bits_depend_neither_on_the_batch_nor_on_threads() -> None:
    graph, data = convolution(((6, 48, 13, 14), 40, (1, 1)))
    alone, one = convolution(((1, 48, 13, 14), 40, (1, 1)))[0], TvmRunner(ONE_CORE)
    together = one.prepare(graph)({"x": data})[0]
    np.testing.assert_array_equal(together, TvmRunner({"threads": 2}).prepare(graph)({"x": data})[0])
    np.testing.assert_array_equal(together, np.concatenate([one.prepare(alone)({"x": x[None]})[0] for x in data]))


def test_where_it_is_used() -> None:
    def used(cpu: str, inputs: int, size: int, outputs: int, stride: int = 1, samples: int = 1) -> bool:
        weight = np.zeros((outputs, inputs, 3, 3), np.float32)
        return float_form(weight, (samples, outputs, size, size), Machine.of(TARGETS[cpu]), stride) is not None

    for cpu in ("x86-64-v3", "x86-64-v4", "sapphirerapids"):
        assert all(used(cpu, *size) for size in ((64, 56, 64), (128, 28, 128), (256, 14, 256), (512, 7, 512))), cpu
    # What pads vectors of channels may be no number.
    assert not used("x86-64-v3", 24, 56, 64) and not used("x86-64-v3", 3, 224, 64)
    assert not used("x86-64-v3", 64, 56, 64, stride=2)
    sizes = [(16, 2, 16), (16, 4, 16), (16, 32, 16), (512, 4, 512)]
    assert [used("x86-64-v3", *size) for size in sizes] == [used("x86-64-v3", *size, samples=64) for size in sizes]
