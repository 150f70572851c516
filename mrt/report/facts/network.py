"""What is known of the whole network, and the report."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from mrt.report.facts.headroom import ProvenTensor
from mrt.report.facts.layer import Layer
from mrt.report.facts.time import Time
from mrt.symbol.strict_json import StrictModel


class Port(StrictModel):
    """An input or an output. scale: the least of them. lo, hi: of its integers."""

    name: str
    shape: list[int]
    dtype: str
    scale: float
    zero_point: int
    lo: int
    hi: int


class ModelFacts(StrictModel):
    """name: of the network. file: the model's file, without its folder. version: of MRT. digest: of the certificate;
    files: the digests that it states. has_postprocess: whether a float tail follows."""

    name: str
    file: str
    version: str
    digest: str
    files: dict[str, str]
    inputs: list[Port]
    outputs: list[Port]
    states: list[str]
    has_postprocess: bool
    parameters: int
    operators: dict[str, int]


class Proof(StrictModel):
    """The certificate's verdict. sentence: in words. max_bits: of the widest tensor. spare_bits: under 32 that the
    widest sum leaves; None where there is no sum. sums, products: how many there are of each."""

    sentence: str
    max_bits: int
    tensors: int
    operators: int
    spare_bits: float | None
    sums: int
    products: int
    full_products: int


class Accuracy(StrictModel):
    """Over all samples of the test data.

    float_top1, integer_top1: shares that are right. lost, won: how many samples only the float network, only the
    integer one gets right; difference: (won - lost) / samples, and its standard error. All None without labels.
    agreement: the share of samples with the same first class. sqnr: of all outputs together. exact_samples: on how many
    the compiled integers were compared bit for bit.
    """

    samples: int
    float_top1: float | None
    integer_top1: float | None
    lost: int | None
    won: int | None
    difference: float | None
    standard_error: float | None
    agreement: float | None
    sqnr: float | None
    exact_samples: int


class Part(StrictModel):
    """A part of an output: places start to stop of an axis. how: how it was found: joined (the network joins these
    tensors there) or ranges (the ranges of channels differ by far). reach: the largest absolute float value."""

    name: str
    axis: int
    start: int
    stop: int
    how: str
    sqnr: float | None
    reach: float


class Output(StrictModel):
    """An output before post-processing, its SQNR, and its parts where it has several."""

    name: str
    shape: list[int]
    samples: int
    sqnr: float | None
    parts: list[Part]


class Sizes(StrictModel):
    """Bytes of the float parameters, of the integer ones, and of the compiled module's file (None: not compiled)."""

    float_parameters: int
    integer_parameters: int
    module: int | None


class Latency(StrictModel):
    """Seconds of one run with `batch` samples, medians; low and high: the 10 % and 90 % quantiles. threads: as the
    module uses them. float_network: in turns with the integers, on as many samples and threads; None where it was not
    measured. float_range: its quantiles. float_by: what compiled which network, in words."""

    integer: float
    low: float
    high: float
    float_network: float | None
    batch: int
    threads: int
    runs: int
    float_range: list[float] | None = None
    float_by: str = ""


class ErrorGroup(StrictModel):
    """Layers that were not told apart, by their ids, and the share of the error where all of them are rounded."""

    layers: list[int]
    share: float


class ErrorTotals(StrictModel):
    """What the layers' shares are of: simulated with all rounded, on samples that calibration held apart.

    outputs: the float tensors at which errors are taken. whole: the error of each with all rounded, as a share of its
    signal. alone: the sum of the layers' shares; more than 1 where errors cancel. source: the data, such as
    data.calibration. groups: where simulating each layer would take too long, the layers that were simulated together;
    they make less than those that were told apart, and have no shares of their own.
    """

    samples: int
    outputs: list[str]
    whole: list[float | None]
    alone: float
    source: str
    groups: list[ErrorGroup] = Field(default_factory=list)


class Choices(StrictModel):
    """What the layers' choices rest on. samples: on which they were simulated, of `source`. sqnr: of the outputs as
    they are, so simulated. layers: whose choices were tried. left_out: what was not, and why."""

    samples: int
    source: str
    sqnr: float | None
    layers: list[int]
    left_out: list[str]


class Trial(StrictModel):
    """A network that `mrt tune` tried. is_best: on the Pareto front. changes: what differs from the first, in words.
    cost: the multiplications of its layers, weighted by their width, over those of the same network in bytes."""

    name: str
    changes: list[str]
    metric: float | None
    seconds: float | None
    bytes: int | None
    bits: float | None
    is_best: bool
    cost: float | None = None


class Trials(StrictModel):
    """metric: what the trials were judged by, its name and unit; objective: what was to be least."""

    metric: str
    objective: str
    trials: list[Trial]


class Note(StrictModel):
    """kind: try (something that would help), done (what was done, and what it cost), fine (what looks worse than it
    is), warning (what a reader must know), internal (of use to developers; shown on request only). title: a sentence.
    text: more of it. code: lines of a configuration to paste, "" for none. layers: the ids of those it speaks of."""

    kind: Literal["try", "done", "fine", "warning", "internal"]
    title: str
    text: str = ""
    code: str = ""
    layers: list[int] = Field(default_factory=list)


class Report(StrictModel):
    """All that a report tells.

    settings: the sections of the configuration as they were run, presets filled in. seconds: by stage. samples: over
    which layers were looked at, from `data_source`. missing: by the name of a part that is None, why it is.
    detailed: how many layers have `values` and `weights`; where there are many those with the largest shares have.
    tensors: the widest of each layer, and as many more as there is room for, of `tensor_count` that are computed.
    """

    format_version: Literal[1]
    model: ModelFacts
    settings: dict[str, Any]
    seconds: dict[str, float]
    samples: int
    data_source: str
    proof: Proof
    sizes: Sizes
    accuracy: Accuracy | None
    outputs: list[Output] | None
    error: ErrorTotals | None
    layers: list[Layer]
    detailed: int
    tensors: list[ProvenTensor]
    tensor_count: int
    latency: Latency | None
    time: Time | None
    trials: Trials | None
    notes: list[Note]
    missing: dict[str, str]
    choices: Choices | None = None
