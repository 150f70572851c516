"""Trials that begin where they differ from others give the bits of trials that run from the input on."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
import pytest

import mrt
from mrt.backend import ONE_THREAD, TvmRunner
from mrt.quantization.algorithms.algorithm import Samples
from mrt.quantization.options import QuantizationConfig
from mrt.quantization.simulation import parts
from mrt.quantization.simulation.simulation import Simulation, Trial, planned_weights
from mrt.symbol import Array, Evaluate, Graph, NumpyRunner, Runner, TensorType
from mrt.symbol.builder import GraphBuilder
from mrt.symbol.operators.activation import Relu
from mrt.symbol.operators.elementwise import ElemwiseAdd
from mrt.symbol.operators.linear import FullyConnected
from mrt.symbol.operators.transform import Concat
from tests.quantization.corrected_networks import calibrated

RNG = np.random.default_rng(11)
WIDTH, LAYERS = 16, 8
X = RNG.standard_normal((16, WIDTH)).astype(np.float32)


def network() -> Graph:
    """Layers in a chain; what the second gives is read again at the end, and one in the middle is an output too."""
    builder = GraphBuilder()
    made = [builder.input("x", TensorType((1, WIDTH)))]
    for number in range(LAYERS):
        weight = RNG.standard_normal((WIDTH, WIDTH)).astype(np.float32) / math.sqrt(WIDTH / 2)
        layer = FullyConnected(num_hidden=WIDTH, no_bias=True)
        value = builder.apply(layer, [made[-1], builder.parameter(f"w{number}", weight)], f"s{number}")
        made.append(builder.apply(Relu(), [value], f"relu{number}"))
    return builder.graph([builder.apply(ElemwiseAdd(), [made[2], made[-1]], "sum"), made[4]])


GRAPH = network()
OBSERVED = calibrated(GRAPH, X)


class Counting:
    """Runs by another runner, and counts the operators that are run."""

    def __init__(self, runner: Runner) -> None:
        self._runner, self.operators = runner, 0

    def prepare(self, graph: Graph) -> Evaluate:
        evaluate = self._runner.prepare(graph)

        def counted(feeds: Mapping[str, Array]) -> list[Array]:
            self.operators += len(graph.operators)
            return evaluate(feeds)

        return counted


def simulated(runner: Runner, has_gates: bool = False) -> Simulation:
    samples = Samples([X], mrt.CalibrationConfig(), runner)
    planned, weights = planned_weights(GRAPH, OBSERVED, QuantizationConfig(), samples)
    return Simulation(planned.plan, weights, samples, has_gates)


def cut_into(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    """From here on simulated networks have so many parts."""
    monkeypatch.setattr(parts, "MOST_PARTS", count)
    monkeypatch.setattr(parts, "LEAST_OPERATIONS", 1.0)


def tried(simulation: Simulation) -> list[Trial]:
    """Each tensor alone, beginnings, finer grids, all but one; one of them twice, some on fewer samples."""
    names = [site.name for site in simulation.sites]
    corrections = {"s3": np.full(WIDTH, 0.1), "s6": np.full(WIDTH, -0.2)}
    return [
        *(Trial(frozenset({name}), samples=2) for name in names),
        *(Trial(frozenset(names[:count])) for count in range(0, len(names), 3)),
        Trial(frozenset(names[:2])),
        Trial(finer={names[-2]: 4}),
        Trial(finer={names[-2]: 4}, corrections=corrections),
        Trial(corrections={"s3": corrections["s3"]}),
    ]


def test_errors_are_those_of_the_whole_network_and_of_each_trial_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compiled code forms sums of fused operators with one rounding less: there the whole network is only near."""
    whole = simulated(NumpyRunner())
    assert len(whole._parts) == 1, "so small a network is not worth parts"
    cut_into(monkeypatch, 6)
    for runner in (NumpyRunner(), TvmRunner(ONE_THREAD)):
        cut = simulated(runner)
        assert len(cut._parts) == 6
        near = {"rtol": 0.0, "atol": 0.0} if isinstance(runner, NumpyRunner) else {"rtol": 1e-3, "atol": 1e-9}
        for since in (None, Trial(frozenset())):
            wanted, found = whole.output_errors(tried(whole), since), cut.output_errors(tried(cut), since)
            alone = [cut.output_errors([trial], since)[0] for trial in tried(cut)]
            np.testing.assert_array_equal(found, alone)
            np.testing.assert_allclose(found, wanted, **near)
        assert len(np.unique(found[:, 0])) > LAYERS, "trials differ"


def test_weights_that_are_rounded_or_not_tell_trials_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    layers = [f"s{number}" for number in range(LAYERS)]
    trials = [Trial(frozenset(), weights=frozenset(layers[:count])) for count in range(LAYERS + 1)]
    wanted = simulated(NumpyRunner(), has_gates=True).errors(trials)
    cut_into(monkeypatch, 5)
    assert simulated(NumpyRunner(), has_gates=True).errors(trials) == wanted
    assert len(set(wanted)) == LAYERS + 1


def test_what_trials_have_in_common_runs_once(monkeypatch: pytest.MonkeyPatch) -> None:
    runner = Counting(NumpyRunner())
    cut_into(monkeypatch, LAYERS)
    simulation = simulated(runner)
    names = [site.name for site in simulation.sites]
    runner.operators = 0
    simulation.error(Trial())
    whole = runner.operators
    runner.operators = 0
    simulation.errors([Trial(frozenset({name})) for name in names])
    assert runner.operators < 0.65 * whole * len(names)
    runner.operators = 0
    simulation.errors([Trial(finer={names[-1]: bits}) for bits in range(8)])
    assert runner.operators < 3 * whole


@pytest.mark.parametrize(
    ("keys", "runs", "wanted"),
    [
        (["abcd", "abcd", "abcd"], 2, [(0, 1, 2)]),
        (["abcd", "abce", "abfg", "hijk"], 2, [(0, 1), (2, 3)]),
        (["abcd", "efgh", "ijkl", "ijkl"], 3, [(0,), (1,), (2, 3)]),
        (["abcd", "efgh", "efgi", "efgj", "efgk", "efgl"], 2, [(0,), (1, 2, 3, 4, 5)]),
        (["", ""], 2, [(0, 1)]),
        ([], 2, []),
    ],
    ids=["alike", "pairs", "three", "a tail", "no parts", "none"],
)
def test_trials_are_shared_out_by_what_they_have_of_their_own(
    keys: list[str], runs: int, wanted: list[tuple[int, ...]]
) -> None:
    """A letter is the key of a part."""
    numbered = {number: [letter.encode() for letter in each] for number, each in enumerate(keys)}
    assert parts.shared_out(list(numbered), numbered, runs) == wanted


def test_more_is_not_held_than_there_is_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    cut_into(monkeypatch, LAYERS)
    places, held = parts.cut_places(GRAPH), parts._held_bytes(GRAPH)
    # In front of the last layer: what it reads, what the second gave, and the output in the middle.
    assert held[GRAPH.operators.index(GRAPH.by_name["s7"])] == 3 * 4 * WIDTH
    assert len(places) == LAYERS - 1
    for room in (sum(held[place] for place in places) - 1, 3 * 4 * WIDTH, 0):
        monkeypatch.setattr(parts, "HELD_BYTES", room)
        fewer = parts.cut_places(GRAPH)
        assert len(fewer) < len(places) and sum(held[place] for place in fewer) <= room


def test_graphs_that_are_prepared_together_give_the_bits_of_each_alone() -> None:
    rows = RNG.standard_normal((4, WIDTH, WIDTH)).astype(np.float32)

    def layer(number: int) -> Graph:
        builder = GraphBuilder()
        x = builder.input("x", TensorType((2, WIDTH)))
        weight = builder.parameter("w", rows[number] + 0)
        return builder.graph([builder.apply(FullyConnected(num_hidden=WIDTH, no_bias=True), [x, weight], "y")])

    def drawn() -> Iterable[Graph]:
        yield from (layer(number) for number in range(4))

    runner = TvmRunner(ONE_THREAD)
    together: Sequence[Callable[[Mapping[str, Array]], list[Array]]] = runner.prepare_all(drawn(), rows.nbytes)
    founds = [evaluate({"x": X[:2]})[0] for evaluate in together]
    for found, weight in zip(founds, rows, strict=True):
        np.testing.assert_allclose(found, X[:2] @ weight.T, rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(founds[2], runner.prepare(layer(2))({"x": X[:2]})[0])


def test_a_network_that_computes_nothing_has_no_error() -> None:
    """Instead of what is joined its parts are measured: here the input, which is not rounded before."""
    builder = GraphBuilder()
    x = builder.input("x", TensorType((1, WIDTH)))
    graph = builder.graph([builder.apply(Concat(dim=1), [x, x], "joined")])
    samples = Samples([X], mrt.CalibrationConfig(), NumpyRunner())
    planned, weights = planned_weights(graph, calibrated(graph, X), QuantizationConfig(), samples)
    simulation = Simulation(planned.plan, weights, samples)
    assert simulation.outputs == ("x",)
    assert simulation.errors([Trial(), Trial(frozenset())]) == [0.0, 0.0]


def test_what_errors_were_taken_from_is_not_run_again(monkeypatch: pytest.MonkeyPatch) -> None:
    cut_into(monkeypatch, LAYERS)
    reference = Trial(frozenset())
    wanted = simulated(NumpyRunner()).error(reference)
    runner = Counting(NumpyRunner())
    simulation = simulated(runner)
    names = [site.name for site in simulation.sites]
    simulation.errors([Trial(frozenset({name}), samples=2) for name in names], reference)
    assert simulation.error(reference) == wanted
    runner.operators = 0
    assert simulation.errors([reference, reference], reference) == [0.0, 0.0]
    assert simulation.error(reference) == wanted
    assert not runner.operators
