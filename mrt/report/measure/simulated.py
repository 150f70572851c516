"""The error that each rounding of a quantized network makes at the outputs, simulated with the weights that it has."""

from __future__ import annotations

from mrt.quantization.expand import plan_graph
from mrt.quantization.simulation.sensitivity import Sensitivity, sensitivity_of
from mrt.quantization.simulation.simulation import Simulation
from mrt.report.layers import find_layers
from mrt.report.measure.subject import Subject
from mrt.report.measure.weights import layer_weights

OPERATIONS = 2e11
"""What simulating may take, in multiplications: it bounds the samples."""


def simulated(subject: Subject) -> Sensitivity | None:
    """None without calibration data. Weights whose integers have no place of their own stay as they are in float."""
    samples = subject.calibration
    if samples is None:
        return None
    plan = plan_graph(subject.prepared, subject.observed.ranges, subject.chosen).plan
    found = layer_weights(find_layers(plan.graph), plan.graph, subject.model)
    weights = {name: weight.real for name, weight in found.items()}
    simulation = Simulation(plan, weights, samples, has_gates=True)
    return sensitivity_of(simulation, subject.model.corrections, subject.report, OPERATIONS, is_alone=True)
