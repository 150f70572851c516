"""The error that each rounding of a quantized network makes at the outputs, simulated with the weights that it has."""

from __future__ import annotations

from mrt.quantization.cost import network_operations
from mrt.quantization.expand import plan_graph
from mrt.quantization.simulation.sensitivity import GATED, sensitivity_of
from mrt.quantization.simulation.simulation import Simulation
from mrt.report.facts import ErrorTotals, Shares
from mrt.report.layers import find_layers
from mrt.report.measure.bounded import LEAST_TRIALS, bounded_shares
from mrt.report.measure.shares import error_totals, shares_of
from mrt.report.measure.subject import Subject
from mrt.report.measure.weights import layer_weights

OPERATIONS = 2e11
"""What simulating may take, in multiplications: it bounds the samples, of which there is one at least."""
RATE = 2e10
"""Multiplications that are simulated in a second."""
MOST_OF_THE_RUN, FEW_SECONDS = 0.25, 60.0
"""What simulating one sample may take: this share of the run's time before, or so long."""
MOST_SECONDS = 300.0
"""What telling the worst layers apart may take."""
SOURCE = "data.calibration"


def error_shares(subject: Subject) -> tuple[dict[int, Shares], ErrorTotals] | None:
    """The shares of the layers by place, and what they are of; None without calibration data.

    Where simulating each layer would take too much of the run's time, of the worst, and of the others together. Weights
    whose integers have no place of their own stay as they are in float. Raises ValueError where even that takes too
    long.
    """
    samples = subject.calibration
    if samples is None:
        return None
    each = network_operations(subject.graph)
    is_affordable = _seconds(subject) <= max(MOST_OF_THE_RUN * sum(subject.seconds.values()), FEW_SECONDS)
    least = GATED * LEAST_TRIALS * each / RATE
    if not is_affordable and least > MOST_SECONDS:
        raise ValueError(
            f"to simulate runs of its {len(subject.layers)} layers would take about {least:.0f} s; "
            "mrt inspect CONFIG.yaml --sensitivity simulates each layer"
        )
    plan = plan_graph(subject.prepared, subject.observed.ranges, subject.chosen).plan
    found = layer_weights(find_layers(plan.graph), plan.graph, subject.model)
    weights = {name: weight.real for name, weight in found.items()}
    simulation = Simulation(plan, weights, samples, has_gates=True)
    if not is_affordable:
        return bounded_shares(simulation, subject.model.corrections, subject.owner, FEW_SECONDS * RATE, SOURCE)
    losses = sensitivity_of(simulation, subject.model.corrections, subject.report, OPERATIONS, is_alone=True)
    shares = shares_of(subject.layers, subject.owner, losses)
    return shares, error_totals(losses, shares, SOURCE)


def _seconds(subject: Subject) -> float:
    """What simulating each layer takes, which has about two roundings, of its weight and of its output."""
    return 2 * len(subject.layers) * GATED * network_operations(subject.graph) / RATE
