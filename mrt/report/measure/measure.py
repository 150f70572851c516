"""Measuring what a report tells of a quantized network, part by part: one that fails is left out with its reason."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TypeVar

from mrt.report.facts import Choice, Choices, Latency, Layer, Output, Report, Shares, Time, report_bytes
from mrt.report.measure.advice import with_advice
from mrt.report.measure.choices import measured_choices
from mrt.report.measure.latency import float_run_of, latency_of
from mrt.report.measure.layers import Found, layer_facts
from mrt.report.measure.network import accuracy_of, model_facts, sizes_of
from mrt.report.measure.notes import notes_of
from mrt.report.measure.outputs import OutputNoise, output_noises
from mrt.report.measure.proven import IntegerLayers, integer_layers, listed_tensors, proof_of
from mrt.report.measure.simulated import error_shares
from mrt.report.measure.subject import Subject
from mrt.report.measure.timing import layer_seconds, partial_reason, time_of
from mrt.report.measure.walk import LayerWalk, forms_of
from mrt.report.measure.weights import LayerWeight, layer_weights

WALK_SHARE, WALK_SECONDS = 0.1, 5.0
"""Looking at samples ends with the one after which it has taken this share of the run's time before, and so long."""
MOST_BYTES = 600_000
"""Of report.json; beyond that the layers with the smallest shares are told of without values and weights."""

Result = TypeVar("Result")


def measure(subject: Subject) -> Report:
    """The report on a network; what of it cannot be measured is None, and `Report.missing` says why."""
    return _Measuring(subject).report()


class _Measuring:
    """Measures one network. missing: by the part that is not there, why."""

    def __init__(self, subject: Subject) -> None:
        self._subject = subject
        self.missing: dict[str, str] = {}

    def report(self) -> Report:
        """All that can be measured."""
        subject = self._subject
        weights = layer_weights(subject.layers, subject.graph, subject.model)
        walk, outputs = self._attempt("layers.values", lambda: self._walked(weights)) or (None, None)
        integer = integer_layers(subject.layers, subject.model, walk.extremes if walk else {})
        found = self._attempt("layers.shares", lambda: error_shares(subject))
        if found is None:
            self.missing.setdefault("layers.shares", "there is no calibration data to simulate the error on")
        shares, totals = ({}, None) if found is None else found
        latency, times = self._times(integer)
        told, choices = self._choices(shares, latency) or (None, {})
        forms = forms_of(subject.layers, subject.model)
        seconds = {} if times is None else layer_seconds(times)
        layers = layer_facts(subject, Found(integer, forms, weights, walk, shares, seconds, choices))
        report = Report(
            format_version=1,
            model=model_facts(subject),
            settings=dict(subject.settings),
            seconds=dict(subject.seconds),
            samples=0 if walk is None else walk.done,
            data_source=subject.source,
            proof=proof_of(subject.model, integer),
            sizes=sizes_of(subject),
            accuracy=self._attempt("accuracy", lambda: accuracy_of(subject.summary)) if subject.summary else None,
            outputs=outputs,
            error=totals,
            layers=with_advice(layers, outputs),
            detailed=len(layers) if walk else 0,
            tensors=listed_tensors(integer),
            tensor_count=len(integer.tensors),
            latency=latency,
            time=times,
            trials=None,
            notes=[],
            missing=self._reasons(),
            choices=told,
        )
        return fitted(report.model_copy(update={"notes": notes_of(report, subject.model.notes)}))

    def _times(self, integer: IntegerLayers) -> tuple[Latency | None, Time | None]:
        """The seconds of a run, and of the functions."""
        subject = self._subject
        float_run = self._attempt("latency.float_network", lambda: float_run_of(subject))
        latency = self._attempt("latency", lambda: latency_of(subject, float_run))
        times = self._attempt("time", lambda: time_of(subject, integer, latency))
        partial = None if times is None else partial_reason(times, subject)
        self.missing |= {} if partial is None else {"time.functions.seconds": partial}
        return latency, times

    def _choices(
        self, shares: Mapping[int, Shares], latency: Latency | None
    ) -> tuple[Choices, dict[int, list[Choice]]] | None:
        """What may be changed of layers whose shares are known."""
        if not shares:
            self.missing["choices"] = "the layers that make most of the error are not known"
            return None
        each = None if latency is None else latency.integer / latency.batch
        return self._attempt("choices", lambda: measured_choices(self._subject, shares, each))

    def _walked(self, weights: dict[str, LayerWeight]) -> tuple[LayerWalk, list[Output]]:
        subject = self._subject
        data = subject.data
        if data is None:
            raise ValueError("there is no data to run the network on")
        count = min(subject.samples, data.size)
        ends = time.perf_counter() + max(WALK_SHARE * sum(subject.seconds.values()), WALK_SECONDS)
        forms = forms_of(subject.layers, subject.model)
        walk = LayerWalk(subject.graph, subject.layers, subject.model, forms, weights, count)
        noises: list[OutputNoise] = output_noises(subject.graph, subject.model.output_names, subject.model.postprocess)
        with subject.report.progress("look at layers", count) as progress:
            for feeds in data.first(count).batches(1):
                for noise, exact, real in zip(noises, *walk.add(subject.completed(feeds)), strict=True):
                    noise.add(exact, real)
                progress(walk.done)
                if time.perf_counter() > ends:
                    break
        return walk, [noise.facts() for noise in noises]

    def _attempt(self, part: str, measure: Callable[[], Result]) -> Result | None:
        """What `measure` gives; None and a reason where it fails. A report never fails the run that it is of."""
        try:
            return measure()
        except Exception as error:
            said = " ".join(str(error).split())
            self.missing[part] = said if isinstance(error, ValueError) and said else f"{type(error).__name__}: {said}"
            return None

    def _reasons(self) -> dict[str, str]:
        """With those of the parts that follow from others, and of what nobody has asked for."""
        subject, found = self._subject, dict(self.missing)
        if "layers.values" in found:
            found["outputs"] = found["layers.values"]
        if not subject.summary:
            found.setdefault("accuracy", "no evaluation was run; give data.test")
        elif subject.summary.get("lost") is None:
            found.setdefault("accuracy.difference", "the test data has no labels")
        found.setdefault("trials", "mrt tune was not run in this folder")
        return found


def fitted(report: Report) -> Report:
    """The report with values and weights of as many layers as there is room for, those with the largest shares."""
    while len(report_bytes(report)) > MOST_BYTES and report.detailed:
        detailed = report.detailed * 3 // 4
        ranked = sorted(report.layers, key=_weight)
        kept = {layer.id for layer in ranked[:detailed]}
        layers = [each if each.id in kept else _bare(each) for each in report.layers]
        why = f"only the {detailed} layers with the largest shares have them, so that the file stays small"
        missing = report.missing | {"layers.values": why}
        report = report.model_copy(update={"layers": layers, "detailed": detailed, "missing": missing})
    return report


def _weight(layer: Layer) -> tuple[float, int]:
    return (0.0 if layer.shares is None else -layer.shares.alone, layer.id)


def _bare(layer: Layer) -> Layer:
    return layer.model_copy(update={"values": None, "weights": None})
