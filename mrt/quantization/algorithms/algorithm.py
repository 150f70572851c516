"""What an algorithm is: what it needs observed, and what it gives; a class a kind, a file an algorithm.

| kind | named by | gives |
|---|---|---|
| `RangeMethod` | `calibrate.method` | the range of a tensor |
| `ParameterChange` | `quantize.parameter_changes` | float parameters instead of those of the prepared network |
| `ChannelChoice` | `quantize.activation.granularity` | which tensors are split into channel groups |
| `WidthChoice` | `quantize.more_bits` | which tensors get more bits |
| `Rounding` | `quantize.weight.rounding` | the integers of a weight |
| `BiasCorrection` | `quantize.bias_correction` | what is added to the output of a reduction |

A class under `@algorithm("name")` is what that name means as the value of its kind's option. Algorithms have no state:
what they need comes as arguments, and what they find is what they return.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from mrt.algorithm_registry import algorithm, find_algorithm
from mrt.calibration import Calibration, CalibrationConfig, Channels, Needs, Range
from mrt.calibration.range_method import RangeMethod
from mrt.calibration.stream import Batch
from mrt.quantization.options import QuantizationConfig
from mrt.symbol import Array, Graph, Runner, Symbol

__all__ = [
    "Algorithm",
    "BiasCorrection",
    "ChannelChoice",
    "Channels",
    "Needs",
    "ParameterChange",
    "RangeMethod",
    "Rounded",
    "Rounding",
    "Samples",
    "UnroundedWeight",
    "WidthChoice",
    "algorithm",
    "find_algorithm",
]

BLOCK = 2**16
"""Weights that are rounded at a time: what is made of them in float64 on the way stays in the cache."""


class Algorithm:
    """What all kinds that work on a whole network share.

    costly: whether to observe what it needs takes much time or room. Calibration that is saved observes what any
    algorithm needs, so that it serves those that are chosen later; what a costly one needs, only where it is chosen.
    """

    costly: ClassVar[bool] = False

    def needs(self, graph: Graph) -> Needs:
        """What calibration shall observe of a prepared float graph, besides the ranges of its tensors."""
        return Needs()


class ChannelChoice(Algorithm, ABC):
    """Says which of the tensors whose granularity has the algorithm's name are split into groups, and into which."""

    option: ClassVar[str] = "quantize.activation.granularity"

    @abstractmethod
    def choose(
        self, graph: Graph, ranges: Mapping[str, Range], config: QuantizationConfig
    ) -> tuple[QuantizationConfig, tuple[str, ...]]:
        """The config with the choice as overrides, and notes of what was chosen, why.

        ranges: of all tensors of the prepared float graph, with those of their channels where they have channels.
        """


@dataclass(frozen=True, eq=False)
class UnroundedWeight:
    """A weight whose quantizer is settled: value = steps * (integer - zero_points), lo <= integer <= hi.

    values: float (O, I, ...). steps: float64, zero_points: int64, of the same rank, each axis 1 or full.
    """

    values: Array
    steps: Array
    zero_points: Array
    lo: int
    hi: int

    def blocks(self) -> Iterator[UnroundedWeight]:
        """Its output channels in runs of about BLOCK weights."""
        each = max(BLOCK * len(self.values) // max(self.values.size, 1), 1)
        for first in range(0, len(self.values), each):
            rows = slice(first, first + each)
            yield UnroundedWeight(self.values[rows], self.steps[rows], self.zero_points[rows], self.lo, self.hi)


Rounded = Callable[[UnroundedWeight], Array]
"""From a weight to its integers, of the weight's shape and of any dtype that holds them."""


class Rounding(Algorithm, ABC):
    """Rounds the weights of reductions."""

    option: ClassVar[str] = "quantize.weight.rounding"

    @abstractmethod
    def of_layer(self, layer: Symbol, observed: Calibration) -> Rounded:
        """What gives the integers of the layer's weight, of [lo, hi], at any scales at which it is tried.

        layer: the reduction, a symbol of the prepared float graph.
        """


@dataclass
class Samples:
    """Calibration data once more, and what runs integer graphs on it.

    batches: as `calibrate` takes them. config: its `samples` and `batch_size` hold here too. progress: told the number
    of reductions done. simulations: of graphs that were tried on the samples already, weights: what was made of the
    last configuration; see `mrt.quantization.simulation`.
    """

    batches: Iterable[Batch | Array]
    config: CalibrationConfig
    runner: Runner
    progress: Callable[[int], None] | None = None
    simulations: dict[Graph, Any] = field(default_factory=dict)
    weights: Any = None


class ParameterChange(Algorithm, ABC):
    """Gives float parameters that lose less in integers, such as scaled ones whose layers compute the same together."""

    option: ClassVar[str] = "quantize.parameter_changes"
    costly: ClassVar[bool] = True

    @abstractmethod
    def change(self, graph: Graph, observed: Calibration, samples: Samples) -> Mapping[str, Array]:
        """Parameters by name, of the shapes and dtypes that they have. Ranges are observed anew behind it.

        graph: prepared, float, as changed by those before. observed: of this graph.
        """


class WidthChoice(Algorithm, ABC):
    """Gives some activations more bits than the configuration asks for."""

    option: ClassVar[str] = "quantize.more_bits"

    @abstractmethod
    def choose(
        self, graph: Graph, observed: Calibration, config: QuantizationConfig, samples: Samples
    ) -> tuple[QuantizationConfig, tuple[str, ...]]:
        """The config with the bits as overrides, and notes of what was chosen, why.

        graph: prepared, float. What the configuration says of single tensors stays.
        """


class BiasCorrection(Algorithm, ABC):
    """Finds what the quantization of weights and tensors takes from the means of a reduction's output channels.

    reads_samples: whether it runs on samples.
    """

    option: ClassVar[str] = "quantize.bias_correction"
    reads_samples: ClassVar[bool] = False

    @abstractmethod
    def corrections(
        self, graph: Graph, observed: Calibration, config: QuantizationConfig, samples: Samples
    ) -> Mapping[str, Array]:
        """What is to be added to the real output of reductions: float64 (O,) by the name of the reduction.

        graph: prepared, float. samples: none where the algorithm does not say that it reads them.
        """
