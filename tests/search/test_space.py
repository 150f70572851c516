"""What may be chosen of a small network, what that costs, and how much of the error each choice causes."""

from __future__ import annotations

import numpy as np
import pytest

from mrt.calibration import Calibration, CalibrationConfig, calibrate
from mrt.frontend import load_model
from mrt.preparation import prepare
from mrt.quantization.algorithms.algorithm import Samples
from mrt.quantization.algorithms.needs import needs_of
from mrt.quantization.cost import WIDE_FACTOR
from mrt.quantization.expand import expand_graph
from mrt.quantization.options import QuantizationConfig
from mrt.search.cost import cost_of, predicted
from mrt.search.sensitivity import measure_sensitivity
from mrt.search.space import WIDTHS, Space, alternatives, bits_of
from mrt.symbol import Graph, NumpyRunner
from tests.search.networks import save_network

SAMPLES = np.random.default_rng(5).normal(size=(128, 2, 4, 4)).astype(np.float32)
PLAIN = QuantizationConfig()


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    path = tmp_path_factory.mktemp("net") / "net.onnx"
    save_network(path)
    return prepare(load_model(path)).graph


@pytest.fixture(scope="module")
def observed(graph: Graph) -> Calibration:
    return calibrate(graph, [SAMPLES], needs_of(graph, PLAIN), CalibrationConfig(), NumpyRunner())


def space_of(graph: Graph, observed: Calibration, config: QuantizationConfig = PLAIN) -> Space:
    return Space.of(graph, observed.ranges, config)


def named(graph: Graph, op: str) -> str:
    return next(symbol.name for symbol in graph.operators if symbol.op == op)


def test_items_are_layers_and_rounded_tensors(graph: Graph, observed: Calibration) -> None:
    conv, dense = named(graph, "Convolution"), named(graph, "FullyConnected")
    space = space_of(graph, observed)
    weights = {item.name: (item.size, item.multiplications) for item in space.items if item.kind == "weight"}
    assert weights == {conv: (54, 54 * 4), dense: (36, 36)}
    tensors = [item for item in space.items if item.kind == "activation"]
    assert [(item.multiplications, item.values) for item in tensors] == [(54 * 4, 32), (36, 12)]
    assert tensors[0].name == "x" and graph.by_name[tensors[1].name].shape == (1, 3, 2, 2)


def test_what_an_override_says_is_no_item(graph: Graph, observed: Calibration) -> None:
    conv = named(graph, "Convolution")
    fixed = {conv: {"weight": {"bits": 6}}, "x": {"activation": {"bits": 12}}}
    config = QuantizationConfig.model_validate({"overrides": fixed})
    space = space_of(graph, observed, config)
    assert {("weight", conv), ("activation", "x")}.isdisjoint(space.by_key)
    assert len(space.items) == 2
    changed = space.with_widths(config, {item.key: 16 if item.kind == "activation" else 2 for item in space.items})
    assert (bits_of(changed, ("weight", conv)), bits_of(changed, ("activation", "x"))) == (6, 12)
    assert all(bits_of(changed, item.key) in (2, 16) for item in space.items)
    assert space.mean_bits(changed) == pytest.approx((54 * 6 + 36 * 2) / 90)


def test_widths_replace_those_before(graph: Graph, observed: Calibration) -> None:
    space = space_of(graph, observed)
    low = space.with_widths(PLAIN, dict.fromkeys((item.key for item in space.items), 4))
    assert set(space.widths(low).values()) == {4}
    assert space.with_widths(low, space.widths(PLAIN)) == PLAIN


def test_alternatives_differ_in_one_option() -> None:
    for name, config in alternatives(PLAIN):
        option = name.partition(":")[0]
        before, after = PLAIN.model_dump(), config.model_dump()
        changed = {
            f"{key}.{inner}" if isinstance(value, dict) else key
            for key, value in after.items()
            for inner in (value if isinstance(value, dict) else (key,))
            if (value[inner] if isinstance(value, dict) else value)
            != (before[key][inner] if isinstance(value, dict) else before[key])
        }
        assert changed == {option}
    assert {"activation.quantizer: affine", "bias_correction: fast"} <= {name for name, _ in alternatives(PLAIN)}


def test_wide_data_costs_more_and_few_bits_are_bytes_as_stored(graph: Graph, observed: Calibration) -> None:
    space = space_of(graph, observed)

    def cost(**widths: int) -> tuple[float, float]:
        config = space.with_widths(PLAIN, {item.key: widths[item.kind] for item in space.items})
        integer = expand_graph(graph, observed.ranges, config, observed=observed).graph
        found = cost_of(integer, space.mean_bits(config), 90)
        return found.latency, found.bits

    assert cost(weight=8, activation=8) == (1.0, 8.0)
    assert cost(weight=3, activation=8) == (1.0, 3.0)
    assert cost(weight=8, activation=12) == (WIDE_FACTOR, 8.0)
    few = space.with_widths(PLAIN, {item.key: 3 for item in space.items if item.kind == "weight"})
    stored = [
        cost_of(expand_graph(graph, observed.ranges, config, observed=observed).graph, 8, 90).bytes
        for config in (PLAIN, few)
    ]
    assert stored[0] >= 90 and abs(stored[0] - stored[1]) <= 4  # constants beside the weights may differ


def test_predicted_costs_add_up_to_that_of_a_candidate(graph: Graph, observed: Calibration) -> None:
    space = space_of(graph, observed)
    items = space.items
    bits = predicted(space, "bits")
    assert sum(bits[item.kind, item.name, 4] for item in items) == pytest.approx(0.5)
    latency = predicted(space, "latency")
    total = 54 * 4 + 36
    assert sum(latency[item.kind, item.name, 8] for item in items) == 0
    assert latency["activation", "x", 10] == pytest.approx(((WIDE_FACTOR - 1) * 54 * 4 + 32) / total)


def rounded(values: np.ndarray, step: float, lo: int, hi: int) -> np.ndarray:
    return np.clip(np.rint(values.astype(np.float64) / step), lo, hi) * step


def test_sensitivities_are_the_errors_that_rounding_makes(graph: Graph, observed: Calibration) -> None:
    """By NumPy, in float64, of the network written out.

    Weights are judged on the first samples, tensors on the last.
    """
    space = space_of(graph, observed)
    samples = Samples([{"x": SAMPLES}], CalibrationConfig(), NumpyRunner())
    wide = space.with_widths(PLAIN, dict.fromkeys(space.by_key, 12))  # what items had makes no difference
    found = measure_sensitivity(graph, observed, wide, space, samples)
    assert {key: set(errors) for key, errors in found.items()} == {
        item.key: set(WIDTHS[item.kind]) for item in space.items
    }
    conv, dense = (graph.by_name[named(graph, op)] for op in ("Convolution", "FullyConnected"))
    w, v = (graph.parameters[layer.inputs[1].name].astype(np.float64) for layer in (conv, dense))
    bias = next(graph.parameters[s.inputs[1].name] for s in graph.operators if s.inputs[0] is conv)

    def hidden(x: np.ndarray, weight: np.ndarray) -> np.ndarray:
        windows = np.lib.stride_tricks.sliding_window_view(x.astype(np.float64), (3, 3), axis=(2, 3))
        return np.maximum(np.einsum("nchwij,ocij->nohw", windows, weight) + bias.reshape(1, -1, 1, 1), 0)

    def share(h: np.ndarray, weight: np.ndarray, samples: np.ndarray) -> float:
        exact = hidden(samples, w).reshape(len(samples), -1) @ v.T
        return float(np.square(h.reshape(len(h), -1) @ weight.T - exact).sum() / np.square(exact).sum())

    def low(weight: np.ndarray, bits: int) -> np.ndarray:
        top = 2 ** (bits - 1) - 1
        step = np.abs(weight).reshape(len(weight), -1).max(axis=1).reshape(-1, *[1] * (weight.ndim - 1)) / top
        return np.rint(weight / step) * step

    first, last = SAMPLES[:32], SAMPLES[96:]
    assert found["weight", conv.name][4] == pytest.approx(share(hidden(first, low(w, 4)), v, first), rel=1e-3)
    assert found["weight", dense.name][4] == pytest.approx(share(hidden(first, w), low(v, 4), first), rel=1e-3)
    inner = next(item for item in space.items if item.kind == "activation" and item.name != "x")
    for bits in (4, 8):
        top = 2 ** (bits - 1) - 1
        x = rounded(last, float(np.abs(SAMPLES).max()) / top, -top, top)
        assert found["activation", "x"][bits] == pytest.approx(share(hidden(x, w), v, last), rel=0.02)
        step = float(hidden(SAMPLES, w).max()) / (2**bits - 1)
        h = rounded(hidden(last, w), step, 0, 2**bits - 1)
        assert found[inner.key][bits] == pytest.approx(share(h, v, last), rel=0.02)
    # Of other widths the error is scaled: they are of the right size.
    for bits in (3, 6):
        assert found["weight", conv.name][bits] == pytest.approx(share(hidden(first, low(w, bits)), v, first), rel=1.0)
