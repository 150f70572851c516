"""The plan: what every tensor of the prepared float graph becomes, as the expansions read it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from mrt.calibration import Range
from mrt.quantization.constant_grids import ConstantGrid
from mrt.quantization.options import ActivationConfig, InputConfig, QuantizationConfig
from mrt.quantization.quantizer import SMALLEST_SCALE, Target
from mrt.symbol import Array, Graph, Symbol

UNLIMITED = 2**30
"""The reach of a target that says a scale only."""
QuantizerOptions = ActivationConfig | InputConfig | Target
"""The options of a tensor's quantizer, or the integers in which the tensor is given."""
Edge = tuple[str, int]
"""The name of a reader, and the place of the tensor among its inputs."""


@dataclass(frozen=True, eq=False)
class TensorPlan:
    """What one tensor becomes.

    Known of the tensor itself:
    range: the real values that it takes. options: what is asked of its quantizer. never_negative: whether it is proven
    to stay at or above zero. fixed: the form that trained quantization gives it. constant: the integers of a parameter
    that came quantized. guard_bits: how much finer than `next_target` its operator brings COMMON inputs to one scale.
    ends_graph: whether its operator does nothing but bring its input's values to the graph's output.

    Its quantizers:
    own: with one scale. narrow: what NARROW readers get; it may cover only the part of the range that they tell apart.
    grouped: with one scale for each channel group, where it has them. used: the part of the range that its readers tell
    apart, where they all are NARROW and some of the range makes no difference; `own` is then the narrow one. output:
    its form as an output of the graph.

    What its readers take:
    edges: the form that each reader takes, None where that is any. next_target: the finest of the forms to which its
    integers are rescaled next, at the tensor's own scale; None where nothing rescales them. saturates: the real
    interval outside of which all readers saturate; infinite where one does not. common_scale: the scale to which its
    operator brings COMMON inputs. parts: the forms of these where each keeps a scale of its own, None where all have
    that one. added_constant: the constant operand of a sum, float64, as far
    as it makes a difference.
    """

    range: Range
    options: QuantizerOptions
    never_negative: bool
    fixed: Target | None
    constant: ConstantGrid | None
    guard_bits: int
    ends_graph: bool
    own: Target
    narrow: Target
    grouped: Target | None
    used: Range | None
    output: Target
    edges: Mapping[Edge, Target | None]
    next_target: Target | None
    saturates: tuple[float, float]
    common_scale: float
    added_constant: Array | None
    parts: tuple[Target, ...] | None = None

    @property
    def magnitude(self) -> float:
        """The largest real magnitude."""
        return self.range.magnitude

    @property
    def covers_part(self) -> bool:
        """Whether NARROW readers get a quantizer of the part of the range that they tell apart."""
        return self.used is not None or self.narrow != self.own

    @property
    def rounded_to(self) -> Target:
        """The quantizer that the tensor is rescaled to next, or else its own."""
        return self.next_target or self.own

    @property
    def is_zero(self) -> bool:
        """Whether the tensor was only ever zero, so that its scale says nothing."""
        return was_zero(self.range, self.own)

    @property
    def is_summed_exactly(self) -> bool:
        """Whether a quantizer of the network rounds the tensor, a sum, which is then formed of inputs as they are."""
        return self.guard_bits > 0 and self.next_target is not None and self.next_target.exact

    def output_quantizer(self, source_is_zero: bool) -> Target:
        """The form to which an operator with an OUTPUT input brings it.

        An input that was only ever zero has a scale that says nothing; it must not become that of the output.
        """
        own = self.output if self.ends_graph else self.grouped or self.own
        return replace(own, pinned=True) if source_is_zero and self.fixed is None else own

    def common_target(self, source: Range, never_negative: bool, inputs: int) -> Target:
        """The form to which an operator with COMMON inputs, so many of them, brings one.

        source, never_negative: of that input. Where the common scale is that of what reads the result next, without
        guard bits, the result's range and zero point are taken too, if all its readers saturate it there; else the zero
        point is 0 and the input saturates where its own quantizer would, but not before a quantizer of the network,
        which does that itself.
        """
        scale, read = self.common_scale, self.rounded_to
        saturates = read.groups is None and not read.pinned and read.hi < UNLIMITED
        if self.guard_bits == 0 and saturates:
            return replace(read, pinned=True)
        top = max(int(np.rint(source.magnitude / scale)), 1)
        top = UNLIMITED // inputs if read.exact else min(top, UNLIMITED)
        return Target(scale, 0 if never_negative else -top, top, pinned=True, exact=read.exact)


def was_zero(range: Range, own: Target) -> bool:
    """Whether a tensor of this range was only ever zero, as far as its own quantizer can tell."""
    return range.magnitude < SMALLEST_SCALE * own.reach


@dataclass(frozen=True, eq=False)
class Plan:
    """The plan of every tensor of a graph: inputs, parameters and what operators give.

    graph: the prepared float graph, its quantized constants as parameters. tensors: by name. left_alone: what keeps
    one scale although the options split it, and why.
    """

    graph: Graph
    config: QuantizationConfig
    tensors: Mapping[str, TensorPlan]
    left_alone: tuple[str, ...] = ()

    def __getitem__(self, tensor: Symbol) -> TensorPlan:
        return self.tensors[tensor.name]

    def edge(self, consumer: Symbol, index: int) -> Target | None:
        """The form in which `consumer` takes input `index`; None for any form."""
        return self[consumer.inputs[index]].edges[consumer.name, index]

    def bias_after(self, symbol: Symbol) -> Array | None:
        """The constant that the only consumer of `symbol` adds to it, float64; None where there is none."""
        consumers = self.graph.consumers[symbol]
        return self[consumers[0]].added_constant if len(consumers) == 1 and symbol not in self.graph.outputs else None

    def output_quantizer(self, consumer: Symbol, index: int) -> Target:
        """The form to which `consumer` brings input `index` where it wants it as OUTPUT."""
        return self[consumer].output_quantizer(self[consumer.inputs[index]].is_zero)

    def common_target(self, consumer: Symbol, index: int) -> Target:
        """The form to which `consumer` brings input `index` where it wants it as COMMON."""
        source, parts = self[consumer.inputs[index]], self[consumer].parts
        if parts is not None:
            return parts[index]
        return self[consumer].common_target(source.range, source.never_negative, len(consumer.inputs))
