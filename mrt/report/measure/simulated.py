"""The error that each rounding of a quantized network makes at the outputs, simulated with the weights that it has."""

from __future__ import annotations

from mrt.quantization.cost import network_operations
from mrt.quantization.expand import plan_graph
from mrt.quantization.simulation.sensitivity import GATED, Sensitivity, sensitivity_of
from mrt.quantization.simulation.simulation import Simulation
from mrt.report.layers import find_layers
from mrt.report.measure.subject import Subject
from mrt.report.measure.weights import layer_weights

OPERATIONS = 2e11
"""What simulating may take, in multiplications: it bounds the samples, of which there is one at least."""
RATE = 2e10
"""Multiplications that are simulated in a second."""
MOST_OF_THE_RUN, FEW_SECONDS = 0.25, 60.0
"""What simulating one sample may take: this share of the run's time before, or so long."""


def simulated(subject: Subject) -> Sensitivity | None:
    """None without calibration data. Weights whose integers have no place of their own stay as they are in float.

    Raises ValueError where it would take too much of the run's time.
    """
    samples = subject.calibration
    if samples is None:
        return None
    _check_time(subject)
    plan = plan_graph(subject.prepared, subject.observed.ranges, subject.chosen).plan
    found = layer_weights(find_layers(plan.graph), plan.graph, subject.model)
    weights = {name: weight.real for name, weight in found.items()}
    simulation = Simulation(plan, weights, samples, has_gates=True)
    return sensitivity_of(simulation, subject.model.corrections, subject.report, OPERATIONS, is_alone=True)


def _check_time(subject: Subject) -> None:
    """Every layer has about two roundings, of its weight and of its output."""
    runs = 2 * len(subject.layers) * GATED
    seconds = runs * network_operations(subject.graph) / RATE
    if seconds > max(MOST_OF_THE_RUN * sum(subject.seconds.values()), FEW_SECONDS):
        raise ValueError(
            f"simulating {len(subject.layers)} layers of this network would take about {seconds:.0f} s; "
            "mrt inspect CONFIG.yaml --sensitivity does"
        )
