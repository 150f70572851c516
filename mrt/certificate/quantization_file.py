"""quantization.json: how the integers of a saved model stand for real values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from pydantic import Field

from mrt.errors import ModelFileError
from mrt.symbol import Array, Graph
from mrt.symbol.files import indented_json
from mrt.symbol.quantized_tensor import TensorQuantization
from mrt.symbol.strict_json import Floats, Integers, StrictModel, parse_json, validated

FORMAT_VERSION = 1


class Range(StrictModel):
    """A calibrated range, lo <= hi."""

    lo: float
    hi: float


class _File(StrictModel):
    """What stands in the file. A model that was saved before there was bias correction has no corrections, one that
    keeps nothing between calls has no states, and where outputs are called as their tensors no names stand."""

    format_version: Literal[1]
    inputs: list[dict[str, Any]]
    outputs: list[dict[str, Any]]
    thresholds: dict[str, Range]
    scales: dict[str, Floats]
    zero_points: dict[str, Integers]
    notes: list[str]
    corrections: dict[str, Floats] = Field(default_factory=dict)
    states: dict[str, str] = Field(default_factory=dict)
    output_names: list[str] = Field(default_factory=list)


@dataclass(frozen=True, eq=False)
class QuantizationFacts:
    """The file's facts; see `mrt.model.QuantizedModel`, which has them under the same names.

    states: the outputs that inputs hold in the next call, by the names of these.
    """

    inputs: tuple[TensorQuantization, ...]
    outputs: tuple[TensorQuantization, ...]
    thresholds: dict[str, Range]
    scales: dict[str, Array]
    zero_points: dict[str, Array]
    notes: tuple[str, ...]
    corrections: dict[str, Array]
    states: dict[str, str]
    output_names: tuple[str, ...]

    @classmethod
    def from_json(cls, content: bytes, path: str) -> QuantizationFacts:
        """The facts in the file at `path`.

        Raises ModelFileError naming the file and the key that is missing, unknown, malformed or of another type.
        """
        try:
            data = validated(_File, parse_json(content))
            inputs, outputs = (tuple(map(TensorQuantization.from_json, part)) for part in (data.inputs, data.outputs))
        except ModelFileError as error:
            raise ModelFileError(f"{path} is malformed: {error}") from None
        for name, found in data.thresholds.items():
            if found.lo > found.hi:
                raise ModelFileError(f"{path}: thresholds.{name} is [{found.lo}, {found.hi}]; lo <= hi is needed")
        rest = data.thresholds, data.scales, data.zero_points, tuple(data.notes), data.corrections, data.states
        return cls(inputs, outputs, *rest, tuple(data.output_names))

    def check_tensors(self, graph: Graph, path: str) -> None:
        """ModelFileError where a scale is not positive, or it or a zero point does not fit its tensor of the graph.

        path: the file that the error names.
        """
        for kind, arrays in (("scales", self.scales), ("zero_points", self.zero_points)):
            for name, array in arrays.items():
                if name not in graph.by_name:
                    raise ModelFileError(f"{path}: {kind}.{name}: the graph has no tensor of this name")
                if not _broadcasts(array, graph.by_name[name].shape):
                    raise ModelFileError(
                        f"{path}: {kind}.{name} has shape {array.shape}; one that broadcasts to "
                        f"{graph.by_name[name].shape} is needed"
                    )
        for name, scale in self.scales.items():
            if not (scale > 0).all():
                raise ModelFileError(f"{path}: scales.{name} is {scale}; positive numbers are needed")


def quantization_json(
    inputs: Sequence[TensorQuantization],
    outputs: Sequence[TensorQuantization],
    ranges: Mapping[str, Any],
    scales: Mapping[str, Any],
    zero_points: Mapping[str, Any],
    notes: Sequence[str],
    corrections: Mapping[str, Array],
    states: Mapping[str, str],
    output_names: Sequence[str],
) -> str:
    """The text of the file. ranges: with `to_json`."""
    return indented_json(
        {
            "format_version": FORMAT_VERSION,
            "inputs": [entry.to_json() for entry in inputs],
            "outputs": [entry.to_json() for entry in outputs],
            "thresholds": {name: found.to_json() for name, found in ranges.items()},
            "scales": {name: np.asarray(scale) for name, scale in scales.items()},
            "zero_points": {name: np.asarray(zero) for name, zero in zero_points.items()},
            "notes": notes,
            "corrections": dict(corrections),
            **({"states": dict(states)} if states else {}),
            **({"output_names": output_names} if output_names else {}),
        }
    )


def _broadcasts(array: Array, shape: tuple[int, ...]) -> bool:
    """Whether an array broadcasts to exactly this shape."""
    try:
        return bool(np.broadcast_shapes(array.shape, shape) == shape)
    except ValueError:
        return False
