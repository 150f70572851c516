"""The options of quantization: bits and scales, as defaults and per symbol."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import Annotated, Literal

import numpy as np
from pydantic import BaseModel, Field, model_validator
from typing_extensions import Self

from mrt.algorithm_registry import naming
from mrt.errors import ConfigError
from mrt.options import Options
from mrt.quantization.quantizer import SMALLEST_SCALE
from mrt.symbol import Graph

Preset = Literal["best", "fast", "mrt"]
Quantizer = Literal["symmetric", "affine"]
ActivationQuantizer = Literal["symmetric", "affine", "auto"]
ParameterChangeName = Annotated[str, naming("quantize.parameter_changes")]
MoreBitsName = Annotated[str, naming("quantize.more_bits", "none")]
BiasCorrectionName = Annotated[str, naming("quantize.bias_correction", "none")]
RoundingName = Annotated[str, naming("quantize.weight.rounding")]
ChannelChoiceName = Annotated[str, naming("quantize.activation.granularity", "layer")]
MOST_BITS = 16
Bits = Field(default=8, ge=2, le=MOST_BITS)


class _Options(Options):
    def changed_by(self, override: BaseModel) -> Self:
        """These options with those of `override` that are given."""
        given = {name: value for name in override.model_fields_set if (value := getattr(override, name)) is not None}
        return self.model_copy(update=given)


class ChannelGranularity(_Options):
    """A scale and a zero point for each `channel` channels."""

    channel: int = Field(ge=1, strict=True)


class ActivationConfig(_Options):
    """How activations are quantized.

    granularity: one scale per tensor (layer), one for each so many channels, or the algorithm that chooses: auto splits
    where calibration shows that it pays. quantizer: symmetric has zero point 0, and one bit more where a tensor is
    never negative; affine maps the calibrated range to all integers; auto is affine where that has the finer steps by
    a tenth. storage: signed or unsigned integers of an affine
    quantizer; auto is unsigned up to 8 bits and signed above.
    """

    bits: int = Bits
    quantizer: ActivationQuantizer = "symmetric"
    storage: Literal["auto", "signed", "unsigned"] = "auto"
    granularity: ChannelGranularity | ChannelChoiceName = "layer"

    @property
    def channel_step(self) -> int | None:
        """How many channels share one scale; None where all do."""
        return self.granularity.channel if isinstance(self.granularity, ChannelGranularity) else None

    @property
    def group_quantizer(self) -> Quantizer:
        """That of channel groups."""
        return "affine" if self.quantizer == "auto" else self.quantizer

    @property
    def is_signed(self) -> bool:
        """Whether an affine quantizer counts from -2^(bits-1) and not from 0."""
        return self.bits > 8 if self.storage == "auto" else self.storage == "signed"


class WeightConfig(_Options):
    """How weights are quantized: symmetric or affine, with one scale per output channel or per layer.

    granularity: over the input channels one scale (layer), or one for each so many of them. rounding: the
    algorithm that rounds them.
    """

    bits: int = Bits
    quantizer: Quantizer = "symmetric"
    scales: Literal["output_channel", "layer"] = "output_channel"
    granularity: ChannelGranularity | Literal["layer"] = "layer"
    rounding: RoundingName = "nearest"

    @property
    def channel_step(self) -> int | None:
        """How many input channels share one scale; None where all do."""
        return self.granularity.channel if isinstance(self.granularity, ChannelGranularity) else None


class OutputConfig(_Options):
    """How the integer outputs are given: one scale per tensor, at most this many bits.

    Where no bits are given, an output that is joined of parts of other ranges has as many more as leave each part 12,
    up to 24, and one that nothing rounds in a network that brings quantizers has 24, with room beyond its range.
    room: how many times as far as calibrated an output reaches before it saturates, as far as it can; 4 by the presets
    best and fast where no bits are given.
    """

    bits: int = Field(default=16, ge=2, le=16)
    room: float = Field(default=1.0, ge=1.0, le=256.0)


class InputConfig(_Options):
    """A model input that is given as integers which exist already, such as uint8 pixels or token ids.

    real = scale * (q - zero_point). range: the least and the greatest integer that occur, by default all of the dtype.
    """

    scale: float = Field(default=1.0, gt=0, allow_inf_nan=False)
    zero_point: int = 0
    dtype: Literal["int8", "uint8", "int16", "int32"] = "uint8"
    range: tuple[int, int] | None = None

    @model_validator(mode="after")
    def _check(self) -> InputConfig:
        info = np.iinfo(self.dtype)
        lo, hi = self.limits
        if not SMALLEST_SCALE <= self.scale <= 1 / SMALLEST_SCALE:
            raise ValueError(f"scale {self.scale} is outside [{SMALLEST_SCALE:.1e}, {1 / SMALLEST_SCALE:.1e}]")
        if not info.min <= lo <= hi <= info.max:
            raise ValueError(f"range [{lo}, {hi}] is no interval of {self.dtype}, [{info.min}, {info.max}]")
        if not lo <= self.zero_point <= hi:
            raise ValueError(f"zero_point {self.zero_point} is outside [{lo}, {hi}]")
        return self

    @property
    def limits(self) -> tuple[int, int]:
        """The least and the greatest integer."""
        info = np.iinfo(self.dtype)
        return self.range or (int(info.min), int(info.max))


class ActivationOverride(_Options):
    """What differs for the activation that a symbol gives."""

    bits: int | None = Field(default=None, ge=2, le=16)
    quantizer: ActivationQuantizer | None = None
    storage: Literal["auto", "signed", "unsigned"] | None = None
    granularity: ChannelGranularity | ChannelChoiceName | None = None


class WeightOverride(_Options):
    """What differs for the weight that a symbol takes."""

    bits: int | None = Field(default=None, ge=2, le=16)
    quantizer: Quantizer | None = None
    scales: Literal["output_channel", "layer"] | None = None
    granularity: ChannelGranularity | Literal["layer"] | None = None
    rounding: RoundingName | None = None


class Override(_Options):
    """What differs for the symbols that a name or pattern matches."""

    activation: ActivationOverride = ActivationOverride()
    weight: WeightOverride = WeightOverride()

    def over(self, earlier: Override | None) -> Override:
        """`earlier` with what this one sets."""
        if earlier is None:
            return self
        activation, weight = earlier.activation.changed_by(self.activation), earlier.weight.changed_by(self.weight)
        return Override(activation=activation, weight=weight)


class QuantizationConfig(_Options):
    """The `quantize` section. `overrides` maps names or fnmatch patterns of prepared float symbols to what differs.
    `max_extra_operations`: what granularity auto may add, as a share of the network's multiplications.
    `inputs` names inputs that are given as integers; the others are quantized from their calibrated range.

    preset: what options mean that are not set, for `mrt.quantize` and `mrt run`: best is what simulation finds on the
    data, fast what one pass over it gives, mrt the rules that the other defaults are: symmetric, largest magnitudes, no
    correction. Whoever plans or expands a graph himself has these.

    Where several patterns match a symbol the last one that sets an option decides. parameter_changes: the algorithms
    that change float parameters, in order. more_bits: the algorithm that gives some activations more bits than asked;
    "none" leaves them. bias_correction: how the shift of each output channel's mean is found that a
    constant then takes back; "none" leaves it.
    tune_ranges: whether ranges that the network brings (FakeQuantize) are moved, by less than a step, so that their
    zero is an integer; else a constant makes up for it. It is noted, and done in preparation.
    """

    preset: Preset = "best"
    activation: ActivationConfig = ActivationConfig()
    weight: WeightConfig = WeightConfig()
    output: OutputConfig = OutputConfig()
    max_extra_operations: float = Field(default=0.1, ge=0, allow_inf_nan=False)
    inputs: Mapping[str, InputConfig] = Field(default_factory=dict)
    overrides: Mapping[str, Override] = Field(default_factory=dict)
    parameter_changes: tuple[ParameterChangeName, ...] = ()
    more_bits: MoreBitsName = "none"
    bias_correction: BiasCorrectionName = "none"
    tune_ranges: bool = False

    @property
    def corrects_biases(self) -> bool:
        """Whether an algorithm of bias correction is chosen."""
        return self.bias_correction != "none"

    @property
    def channel_choices(self) -> tuple[str, ...]:
        """The algorithms that some tensors leave their granularity to."""
        asked = (self.activation.granularity, *(each.activation.granularity for each in self.overrides.values()))
        return tuple(dict.fromkeys(name for name in asked if isinstance(name, str) and name != "layer"))

    @property
    def roundings(self) -> tuple[str, ...]:
        """The algorithms that round weights."""
        asked = (self.weight.rounding, *(each.weight.rounding for each in self.overrides.values()))
        return tuple(dict.fromkeys(name for name in asked if name is not None))

    def activation_of(self, name: str, default: ActivationConfig | None = None) -> ActivationConfig:
        """The activation options of one symbol. default: what overrides differ from, by default the general ones."""
        chosen = default or self.activation
        for override in self._matching(name):
            chosen = chosen.changed_by(override.activation)
        return chosen

    def overrides_activation(self, name: str) -> bool:
        """Whether an override sets an activation option of this symbol."""
        return any(override.activation != ActivationOverride() for override in self._matching(name))

    def weight_of(self, name: str) -> WeightConfig:
        """The weight options of one symbol."""
        chosen = self.weight
        for override in self._matching(name):
            chosen = chosen.changed_by(override.weight)
        return chosen

    def check_against(self, graph: Graph) -> None:
        """ConfigError naming the first name of `inputs` or pattern of `overrides` that matches nothing in the graph.

        Also where an input of integers, which are its values, is declared to stand for other ones.
        """
        types = {symbol.name: symbol.type for symbol in graph.inputs}
        for name, options in self.inputs.items():
            if name not in types:
                raise ConfigError(
                    f"quantize.inputs.{name} (in Python QuantizationConfig.inputs) is no input of the model; its "
                    f"inputs are {list(types)}"
                )
            if types[name].is_integer and (options.scale, options.zero_point) != (1.0, 0):
                raise ConfigError(
                    f"quantize.inputs.{name} has scale {options.scale} and zero_point {options.zero_point}, but the "
                    f"model takes integers there ({types[name]}): scale 1 and zero_point 0 are needed"
                )
        for pattern in self.overrides:
            if not any(matches(pattern, symbol.name) for symbol in graph.symbols):
                raise no_override(pattern, [symbol.name for symbol in graph.symbols])

    def _matching(self, name: str) -> list[Override]:
        return [override for pattern, override in self.overrides.items() if matches(pattern, name)]


def matches(pattern: str, name: str) -> bool:
    """Whether a name or fnmatch pattern means a symbol."""
    return pattern == name or fnmatchcase(name, pattern)


def no_override(pattern: str, names: Iterable[str]) -> ConfigError:
    """The error for an override that means nothing, with the nearest of the names that would mean something."""
    near = get_close_matches(pattern, list(dict.fromkeys(names)), 3, cutoff=0.4)
    meant = f"did you mean {', '.join(near)}?" if near else "mrt.prepare(model) shows the names"
    return ConfigError(
        f"quantize.overrides.{pattern} matches no symbol of the prepared graph, and no name of the model's own; {meant}"
    )
