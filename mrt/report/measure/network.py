"""What is told of the whole network: its facts, sizes, and accuracy with the error of the difference."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from mrt.certificate import CERTIFICATE_FILE
from mrt.report.facts import Accuracy, ModelFacts, Port, Sizes
from mrt.report.measure.numbers import known, rounded
from mrt.report.measure.subject import Subject
from mrt.symbol.quantized_tensor import TensorQuantization
from mrt.version import __version__


def model_facts(subject: Subject) -> ModelFacts:
    model = subject.model
    return ModelFacts(
        name=subject.name,
        file=subject.file,
        version=__version__,
        digest=model.digest,
        files={**model.certificate.files, CERTIFICATE_FILE: model.digest},
        inputs=[_port(entry) for entry in model.inputs],
        outputs=[_port(entry) for entry in model.outputs],
        states=list(model.states),
        has_postprocess=model.postprocess is not None,
        parameters=sum(value.size for value in subject.original.parameters.values()),
        operators=model.graph.count_operators(),
    )


def _port(entry: TensorQuantization) -> Port:
    return Port(
        name=entry.name,
        shape=list(entry.shape),
        dtype=entry.dtype,
        scale=rounded(entry.scale.min(), 6),
        zero_point=int(entry.zero_point),
        lo=int(entry.lo),
        hi=int(entry.hi),
    )


def sizes_of(subject: Subject) -> Sizes:
    original, integer = subject.original.parameters, subject.model.graph.parameters
    return Sizes(
        float_parameters=sum(value.nbytes for value in original.values()),
        integer_parameters=sum(value.nbytes for value in integer.values()),
        module=subject.module_bytes,
    )


def accuracy_of(summary: Mapping[str, Any]) -> Accuracy:
    """From the summary of an evaluation.

    The two networks are scored on the same samples, so that the difference's error follows from the samples that only
    one gets right: with b lost and c won of n it is sqrt(b + c - (c - b)^2 / n) / n.
    """
    samples, lost, won = summary["samples"], summary.get("lost"), summary.get("won")
    difference = error = None
    if lost is not None and won is not None:
        difference = rounded((won - lost) / samples, 6)
        error = rounded(math.sqrt(max(lost + won - (won - lost) ** 2 / samples, 0.0)) / samples, 6)
    return Accuracy(
        samples=samples,
        float_top1=known(summary["float"]["top1"], 6),
        integer_top1=known(summary["integer"]["top1"], 6),
        lost=lost,
        won=won,
        difference=difference,
        standard_error=error,
        agreement=known(summary["agreement"], 6),
        sqnr=known(summary["sqnr_db"]),
        exact_samples=summary["bit_exact_samples"],
    )
