"""What is known of one layer of the user's network."""

from __future__ import annotations

from pydantic import Field

from mrt.report.facts.headroom import Headroom
from mrt.symbol.strict_json import StrictModel


class Form(StrictModel):
    """The integers that a layer ends in: real = scale * (q - zero_point), lo <= q <= hi.

    tensor: its name in the integer graph. scale, scale_most, zero_point: the least and the greatest scale, and the
    first zero point, where channels have their own (scale_count of them). real_lo, real_hi: the least and the greatest
    real value that it can hold. calibrated: the range that calibration found, [lo, hi]; None where it looked at none.
    """

    tensor: str
    dtype: str
    scale: float
    scale_most: float
    scale_count: int
    zero_point: int
    lo: int
    hi: int
    real_lo: float
    real_hi: float
    calibrated: list[float] | None


class Bits(StrictModel):
    """what: activation or weight. asked: as the configuration says for all. chosen: of this one. why: in words.
    name: what `quantize.overrides` calls that whose bits these are; of a layer that keeps the scale that it takes, such
    as max pooling, a tensor of another layer."""

    what: str
    asked: int | None
    chosen: int
    why: str
    name: str = ""


class Shares(StrictModel):
    """The energy of the error that each makes at the network's outputs, alone, as a share of that of all together.

    output: of rounding what the layer gives. weights: of rounding its weights; None where it has none. alone: the sum.
    Errors that cancel make shares add up to more than 1. by_output: the sum at each of `ErrorTotals.outputs`.
    """

    output: float
    weights: float | None
    alone: float
    by_output: list[float | None]


class LayerSqnr(StrictModel):
    """isolated: at the layer's own output, where nothing before it is rounded. cumulative: the integers' that were
    computed, where all before it is. worst_steps: the largest error of these, in steps of the tensor."""

    isolated: float | None
    cumulative: float | None
    worst_steps: float | None = None


class Histogram(StrictModel):
    """Counts of values in bins of one width from lo to hi."""

    lo: float
    hi: float
    counts: list[int]


class Channel(StrictModel):
    """The spread of one channel's values: its place, the least, the quantiles 1, 25, 50, 75 and 99 %, the greatest."""

    channel: int
    spread: list[float]


class Errors(StrictModel):
    """integer minus float in steps of the tensor, where either is not 0: histogram, root mean square, mean.

    What rounding alone gives lies within half a step.
    """

    histogram: Histogram
    rms: float
    mean: float


class Values(StrictModel):
    """The float values that a layer gave for so many samples.

    count: of all values. zeros: share of those that are 0, which the histogram leaves out. clipped: share of those
    beyond what its integers hold by more than half a step. channels: evenly chosen where there are many, of
    `channel_count` (None: it has no axis of channels). errors: None where no integers were compared.
    """

    count: int
    lo: float
    hi: float
    zeros: float
    clipped: float
    histogram: Histogram
    channel_count: int | None
    channels: list[Channel]
    errors: Errors | None


class Weights(StrictModel):
    """The weight of a layer and its integers.

    shape: of the weight. sqnr: of the integers against float. zeros: share of integers that are 0. levels: histogram of
    integers. channel_count: of output channels; channels: the places of some, evenly chosen; scales, largest: their
    scales and largest absolute weights; histograms: their counts in 16 bins over [-largest, largest].
    """

    shape: list[int]
    sqnr: float | None
    zeros: float
    levels: Histogram
    channel_count: int
    channels: list[int]
    scales: list[float]
    largest: list[float]
    histograms: list[list[int]]


class Rescaling(StrictModel):
    """How sums become the integers of the layer's output: x * multiplier, shifted right; least and greatest of each."""

    multipliers: list[int] | None
    shifts: list[int] | None


class Choice(StrictModel):
    """Something that `mrt tune` may change of a layer, simulated with the rest of the network as it is.

    what: output, input or weights. name: what `quantize.overrides` calls that. option: in words. code: the entry of
    `quantize.overrides` that asks for it. sqnr: of the outputs then, and gain: decibels more than before. operations:
    that it adds, as a share of the network's, weighted by width, and seconds: that share of the time of a sample, an
    estimate. parameter_bytes, tensor_bytes: that parameters, and the tensor, take more.
    """

    what: str
    name: str
    option: str
    code: str
    sqnr: float | None
    gain: float
    operations: float
    parameter_bytes: int
    tensor_bytes: int
    seconds: float | None


class Layer(StrictModel):
    """A head operator of the user's network and the operators that follow it alone, or an input.

    id: its place. name: the float tensor that it gives. head: the name of its head. symbols: of the prepared float
    network, in order. kind: such as input, convolution, depthwise, dense, matmul, norm, softmax, pooling, add.
    operator: of the head. detail: such as "3×3 /2". channels: such as "16→32", "" for none. followers: such as relu.
    shape: of its output, batch first. reads: ids of the layers whose outputs it takes. source: what the user's file
    calls it, where that is another name.
    form: None where no integer tensor ends it by itself; it is then part of what follows.
    seconds: of one run of the compiled network; time_share: of that of all. products: multiplications for one sample.
    correction: the least and the greatest value that bias correction added. advice: what would help, in words.
    choices: what was tried of it, the best first; None where nothing was.
    """

    id: int
    name: str
    head: str
    symbols: list[str]
    kind: str
    operator: str
    detail: str
    channels: str
    followers: list[str]
    shape: list[int]
    reads: list[int]
    form: Form | None
    source: str | None = None
    bits: list[Bits] = Field(default_factory=list)
    shares: Shares | None = None
    sqnr: LayerSqnr | None = None
    headroom: Headroom
    rescaling: Rescaling | None = None
    correction: list[float] | None = None
    bytes: int = 0
    products: int = 0
    seconds: float | None = None
    time_share: float | None = None
    values: Values | None = None
    weights: Weights | None = None
    advice: str | None = None
    choices: list[Choice] | None = None
