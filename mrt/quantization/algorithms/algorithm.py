"""What an algorithm is: what it needs observed, and what it gives; a class a kind, a file an algorithm.

| kind | named by | gives |
|---|---|---|
| `RangeMethod` | `calibrate.method` | the range of a tensor |
| `ParameterChange` | `quantize.parameter_changes` | a float network that computes the same by other parameters |
| `ChannelChoice` | `quantize.activation.granularity` | which tensors are split into channel groups |
| `WidthChoice` | `quantize.more_bits` | which tensors get more bits |
| `Rounding` | `quantize.weight.rounding` | the integers of a weight |
| `BiasCorrection` | `quantize.bias_correction` | what is added to the output of a reduction |

A class under `@algorithm("name")` is what that name means as the value of its kind's option. Algorithms have no state:
what they need comes as arguments, and what they find is what they return.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

from mrt.algorithm_registry import algorithm, find_algorithm
from mrt.calibration import Calibration, CalibrationConfig, Channels, Needs, Range
from mrt.calibration.network import FloatNetwork
from mrt.calibration.range_method import RangeMethod
from mrt.calibration.stream import Batch
from mrt.errors import QuantizationError
from mrt.execution import THREADS, Executor
from mrt.quantization.options import QuantizationConfig, WeightConfig
from mrt.symbol import Array, Graph, Runner, Symbol

__all__ = [
    "Algorithm",
    "Apart",
    "AtShares",
    "BiasCorrection",
    "Changed",
    "ChannelChoice",
    "Channels",
    "Covering",
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
    "float_network",
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

    def values(self, graph: Graph) -> tuple[Symbol, ...]:
        """The tensors of a prepared float graph whose values over samples it will read, for which the network that
        calibration runs is then compiled too."""
        return ()


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
AtShares = Callable[[Array], UnroundedWeight]
"""From shares of the largest weight of each output channel, (O,), to the weight at scales that cover them."""
Covering = Callable[[AtShares], Array]
"""Finds the shares, float64 (O,) and positive, at which a weight loses least: what lies beyond them saturates."""


class Apart(Protocol):
    """What rounds the weight of one layer and depends on nothing else; it is sent to whoever does."""

    @property
    def work(self) -> float:
        """About how many multiplications it takes."""

    @property
    def integers(self) -> Rounded:
        """As `Rounding.of_layer`."""

    def covering(self, options: WeightConfig) -> Covering | None:
        """As `Rounding.covering`."""

    def found(self) -> Any:
        """What was found since it was made: data, for `Rounding.take`."""


class Rounding(Algorithm, ABC):
    """Rounds the weights of reductions.

    reads_moments: whether it needs the moments of its layers (`observed.moments`), gathered on samples.
    """

    option: ClassVar[str] = "quantize.weight.rounding"
    reads_moments: ClassVar[bool] = False

    @abstractmethod
    def of_layer(self, layer: Symbol, observed: Calibration) -> Rounded:
        """What gives the integers of the layer's weight, of [lo, hi], at any scales at which it is tried.

        layer: the reduction, a symbol of the prepared float graph.
        """

    def values(self, graph: Graph) -> tuple[Symbol, ...]:
        layers = [layer for layer in graph.operators if layer.channel_axis is not None] if self.reads_moments else []
        return tuple(tensor for layer in layers for tensor in (layer.inputs[0], layer))

    def covering(self, layer: Symbol, observed: Calibration, options: WeightConfig) -> Covering | None:
        """What finds how much of the layer's largest weights the scales cover; None where they cover all of them.

        Where `options` ask for one scale a layer it gives the same share for all channels.
        """
        return None

    def crosses(self, options: WeightConfig) -> bool:
        """Whether it needs the products of what the layer reads with what it gives, among its moments."""
        return False

    def apart(self, layer: Symbol, observed: Calibration, options: WeightConfig) -> Apart | None:
        """What rounds the layer's weight apart from all others, in another process too; None where that does not pay,
        or was done. What it has found is handed to `take`."""
        return None

    def take(self, layer: Symbol, observed: Calibration, found: Any) -> None:
        """Keeps what `apart` has found, for when `of_layer` and `covering` are asked: they give the same without."""

    def notes(self, layers: Sequence[Symbol], observed: Calibration) -> tuple[str, ...]:
        """What a reader of the model should know of how these layers, all that name it, were rounded."""
        return ()


@dataclass
class Samples:
    """Calibration data once more, and what runs integer graphs on it.

    batches: as `calibrate` takes them. config: its `samples` and `batch_size` hold here too. progress: told the number
    of reductions done. simulations: of graphs that were tried on the samples already, weights: what was made of the
    last configuration, rounder: who rounded them, and knows them; see `mrt.quantization.simulation`. total: how many
    samples there are; 0 where that is not known. network: the float network that was compiled last, see
    `float_network`. executor: who does the work.
    """

    batches: Iterable[Batch | Array]
    config: CalibrationConfig
    runner: Runner
    progress: Callable[[int], None] | None = None
    simulations: dict[Graph, Any] = field(default_factory=dict)
    weights: Any = None
    rounder: Any = None
    total: int = 0
    network: FloatNetwork | None = None
    executor: Executor = THREADS


def float_network(graph: Graph, samples: Samples) -> FloatNetwork:
    """The float network of the samples, compiled already where it was asked for values of this graph before."""
    if samples.network is None or samples.network.graph is not graph:
        samples.network = FloatNetwork(graph, samples.runner, samples.config.batch_size)
    return samples.network


@dataclass(frozen=True, eq=False)
class Changed:
    """A float network that gives the outputs that it gave, to rounding.

    graph: of the same inputs, outputs of the same names and types; tensors that are still there keep their names, since
    options and reports name them. notes: what was chosen, and why. observed: what calibration finds in it, where that
    follows from what it found before; else it is run anew.
    """

    graph: Graph
    notes: tuple[str, ...] = ()
    observed: Calibration | None = None

    @classmethod
    def by_parameters(cls, graph: Graph, given: Mapping[str, Array], notes: tuple[str, ...] = ()) -> Changed:
        """The graph with other parameters, by name; QuantizationError naming one that it does not have, GraphError one
        of another shape or dtype."""
        unknown = [name for name in given if name not in graph.parameters]
        if unknown:
            raise QuantizationError(f"{unknown[0]} is given, which is no parameter of the prepared graph")
        return cls(Graph(graph.inputs, graph.outputs, {**graph.parameters, **given}), notes)


class ParameterChange(Algorithm, ABC):
    """Gives float parameters that lose less in integers, such as scaled ones whose layers compute the same together."""

    option: ClassVar[str] = "quantize.parameter_changes"
    costly: ClassVar[bool] = True

    @abstractmethod
    def change(self, graph: Graph, observed: Calibration, config: QuantizationConfig, samples: Samples) -> Changed:
        """The changed network.

        graph: prepared, float, as changed by those before. observed: of this graph. config: what is asked of the
        quantizers of its tensors and weights.
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
