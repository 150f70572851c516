"""A compiled model against its float network over any data, with labels or without."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from mrt.backend import TvmRunner
from mrt.errors import DataError
from mrt.evaluation import Noise, Share, predict, quantization_noise, run_batched
from mrt.progress import Reporter
from mrt.runtime import Module
from mrt.samples import arrays_of, batches_in, count_of, parts_of
from mrt.symbol import Array, Graph
from mrt.symbol.arrays import as_array
from mrt.symbol.states import fed_inputs, states_of
from mrt.symbol.stream import stream_of

BATCH = 16
"""Samples of a float run."""
FEWEST_CLASSES = 2
Run = Callable[[Mapping[str, Array]], list[Array]]


@dataclass(frozen=True)
class OutputScore:
    """One output over all samples.

    noise: signal and error of the integer network against the float one. largest: the largest difference of an element.
    agreement: how often both have the same highest class, along the axis of the classes; empty where there is none.
    float_top1, integer_top1: how often that is the label; empty where labels do not fit.
    """

    name: str
    noise: Noise = field(default_factory=Noise)
    largest: float = 0.0
    agreement: Share = field(default_factory=Share)
    float_top1: Share = field(default_factory=Share)
    integer_top1: Share = field(default_factory=Share)

    @property
    def sqnr_db(self) -> float | None:
        """10 log10(sum f^2 / sum (f - q)^2); None where there is no error or no signal."""
        return self.noise.sqnr_db

    def __add__(self, other: OutputScore) -> OutputScore:
        return OutputScore(
            self.name,
            self.noise + other.noise,
            max(self.largest, other.largest),
            self.agreement + other.agreement,
            self.float_top1 + other.float_top1,
            self.integer_top1 + other.integer_top1,
        )


@dataclass(frozen=True)
class Evaluation:
    """A float network against its integer form; `print` shows it. notes: why labels were not used, for example."""

    samples: int
    outputs: tuple[OutputScore, ...]
    notes: tuple[str, ...] = ()

    @property
    def scored(self) -> OutputScore | None:
        """The output that labels fit, the first such; None where there is none."""
        return next((output for output in self.outputs if output.float_top1.total), None)

    @property
    def float_top1(self) -> float | None:
        """The share of 1 of the labels that the float network gives; None without labels that fit."""
        return None if self.scored is None else self.scored.float_top1.value

    @property
    def integer_top1(self) -> float | None:
        """The same of the integer network."""
        return None if self.scored is None else self.scored.integer_top1.value

    @property
    def agreement(self) -> float | None:
        """The share of classes that both networks give, in the output that labels fit or the first that has classes."""
        return next((o.agreement.value for o in (self.scored, *self.outputs) if o and o.agreement.total), None)

    @property
    def sqnr_db(self) -> dict[str, float | None]:
        """By output."""
        return {output.name: output.sqnr_db for output in self.outputs}

    def __str__(self) -> str:
        lines = [f"{self.samples} samples"]
        if self.scored is not None:
            lines.append(
                f"top-1 of {self.scored.name}: float {_percent(self.scored.float_top1)}, "
                f"integer {_percent(self.scored.integer_top1)}"
            )
        width = max((len(output.name) for output in self.outputs), default=0)
        for output in self.outputs:
            agreed = f", same class {_percent(output.agreement)}" if output.agreement.total else ""
            name, difference = output.name.ljust(width), f"largest difference {output.largest:.3g}"
            lines.append(f"{name}  {_sqnr(output)}{agreed}, {difference}")
        return "\n".join([*lines, *self.notes])

    def _repr_html_(self) -> str:
        from html import escape

        return f"<pre>{escape(str(self))}</pre>"


def _percent(share: Share) -> str:
    return "-" if share.value is None else f"{100 * share.value:.2f} %"


def _sqnr(output: OutputScore) -> str:
    if output.noise.error == 0:
        return "exact"
    return "no signal" if output.sqnr_db is None else f"SQNR {output.sqnr_db:.2f} dB"


@dataclass
class _Score:
    """The sum over batches, as it grows."""

    outputs: list[OutputScore]
    samples: int = 0
    notes: dict[str, None] = field(default_factory=dict)


def evaluate(network: Graph, module: Module, data: Any, samples: int | None, report: Reporter) -> Evaluation:
    """The scores of `module` against the float network that it was made of.

    data: batches as `parts_of` takes them, or one. samples: how many, at most; None for all. Networks with states run
    along the data in its order.
    Raises DataError for data that does not fit, for a label beyond the classes, and without any sample.
    """
    names = [symbol.name for symbol in fed_inputs(network)]
    states = {state.place for state in states_of(network)}
    titles = [title for place, title in enumerate(network.titles) if place not in states]
    reference, measured = _runs(network, module)
    score = _Score([OutputScore(title) for title in titles])
    total = count_of(data)
    with report.progress("evaluate", min(total, samples or total)) as tell:
        for number, batch in enumerate(batches_in(data, "data")):
            if samples is not None and score.samples >= samples:
                break
            where = f"batch {number}"
            found, labels = parts_of(batch, names, where)
            feeds = arrays_of(found, names, where)
            feeds, labels = _cut(feeds, labels, samples, score.samples)
            _add(score, reference(_real(feeds, network, module)), measured(feeds), labels, len(feeds[names[0]]))
            tell(score.samples)
    if not score.samples:
        raise DataError("data holds no sample; at least one is needed")
    return Evaluation(score.samples, tuple(score.outputs), tuple(score.notes))


def _runs(network: Graph, module: Module) -> tuple[Run, Run]:
    """What runs the float network, and what the integer one, for any number of samples; states are left out."""
    if states_of(network):
        return stream_of(network, TvmRunner()).along, module.stream().along
    return run_batched(network, TvmRunner(), BATCH), lambda feeds: _listed(module(feeds))


def _listed(outputs: Array | list[Array]) -> list[Array]:
    return outputs if isinstance(outputs, list) else [outputs]


def _cut(feeds: dict[str, Array], labels: Any, samples: int | None, done: int) -> tuple[dict[str, Array], Any]:
    """The batch without what is beyond `samples`."""
    if samples is None or not all(array.ndim for array in feeds.values()):
        return feeds, labels
    left = samples - done
    return {name: array[:left] for name, array in feeds.items()}, None if labels is None else labels[:left]


def _real(feeds: Mapping[str, Array], network: Graph, module: Module) -> dict[str, Array]:
    """What the float network takes: of integers that an input is declared to be given, their real values."""
    real = dict(feeds)
    for entry in module.inputs:
        array = feeds.get(entry.name)
        if not entry.is_given or array is None or array.dtype.kind not in "iub":
            continue
        if network.by_name[entry.name].type.is_float:
            real[entry.name] = entry.dequantize(entry.given(array))
    return real


def _add(score: _Score, floats: list[Array], integers: list[Array], labels: Any, count: int) -> None:
    """Adds one batch to the score. labels: as they were given, or None."""
    known = None if labels is None else _labels(labels, count)
    if labels is not None and known is None:
        score.notes[f"labels are left out: a {type(labels).__name__} is no array of integers, one row a sample"] = None
    is_scored = False
    for place, (f, q) in enumerate(zip(floats, integers, strict=True)):
        axis = None if known is None or is_scored else _class_axis(f, known)
        part = OutputScore(
            score.outputs[place].name,
            quantization_noise(f, q),
            float(np.abs(f.astype(np.float64) - q).max(initial=0.0)),
            _agreement(f, q, axis),
        )
        if axis is not None and known is not None:
            is_scored = True
            part = replace(part, float_top1=_top1(f, known, axis), integer_top1=_top1(q, known, axis))
        score.outputs[place] += part
    if known is not None and not is_scored:
        score.notes[f"labels of shape {known.shape} fit no output, and are left out"] = None
    score.samples += count


def _labels(labels: Any, count: int) -> Array | None:
    """Labels as integers [samples, ...]; None where they are none."""
    try:
        array = as_array(labels, "labels")
    except DataError:
        return None
    if array.dtype.kind not in "iu" or array.shape[:1] != (count,):
        return None
    return array[:, 0] if array.ndim == 2 and array.shape[1] == 1 else array


def _class_axis(scores: Array, labels: Array) -> int | None:
    """The axis of an output that holds a class for each label, the last or axis 1; None where labels do not fit."""
    for axis in (-1, 1):
        if scores.ndim > 1 and scores.shape[axis] > 1 and np.delete(scores.shape, axis).tolist() == list(labels.shape):
            return axis
    is_flat = scores.ndim > 1 and labels.ndim == 1 and max(scores.shape[1:]) == np.prod(scores.shape[1:]) > 1
    return int(np.argmax(scores.shape[1:])) + 1 if is_flat else None


def _by_class(scores: Array, axis: int) -> Array:
    """The scores with the classes last, a row for each label."""
    return np.moveaxis(scores, axis, -1).reshape(-1, scores.shape[axis])


def _agreement(f: Array, q: Array, axis: int | None) -> Share:
    """Of one output; empty where it holds no classes as far as its shape tells: [samples, classes], or labels fit."""
    if axis is None:
        if f.ndim != 2 or f.shape[1] < FEWEST_CLASSES:
            return Share()
        axis = 1
    same = predict(_by_class(f, axis)) == predict(_by_class(q, axis))
    return Share(int(same.sum()), same.size)


def _top1(scores: Array, labels: Array, axis: int) -> Share:
    """How many labels are the highest class; labels below 0, as of padding, are left out."""
    classes, flat = scores.shape[axis], labels.reshape(-1)
    if flat.size and flat.max() >= classes:
        raise DataError(f"the labels go up to {flat.max()}, the network has {classes} classes")
    hits = predict(_by_class(scores, axis)) == flat
    return Share(int(hits[flat >= 0].sum()), int((flat >= 0).sum()))
