"""Each tensor's own quantizer: what the options and the graph ask of it, and its integers for a range."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np

from mrt.calibration import Range
from mrt.errors import QuantizationError
from mrt.quantization.constant_grids import ConstantGrid
from mrt.quantization.exact_integers import is_computed
from mrt.quantization.options import MOST_BITS, InputConfig, QuantizationConfig
from mrt.quantization.plan.attention_masks import extra_mask_bits, masked_scores_of
from mrt.quantization.plan.divisors import divided_tensors
from mrt.quantization.plan.facts import FactPass
from mrt.quantization.plan.final_ranges import ARGUMENT_BITS, final_arguments
from mrt.quantization.plan.trained import FINE_BITS, input_bits, unquantized_tensors
from mrt.quantization.quantizer import Target, affine_target, symmetric_target
from mrt.quantization.remedies import given_integers
from mrt.quantization.tensor_plan import UNLIMITED, QuantizerOptions
from mrt.symbol import Graph, Symbol

NOTHING: Mapping[str, ConstantGrid] = MappingProxyType({})
LOPSIDED = 1.1
"""By how much the steps of a symmetric quantizer must be wider than those of an affine one, for that to be taken."""


def quantizer_options(
    graph: Graph,
    ranges: Mapping[str, Range],
    config: QuantizationConfig,
    fixed: Mapping[str, Target],
    constants: Mapping[str, ConstantGrid] = NOTHING,
) -> dict[str, QuantizerOptions]:
    """What is asked of every tensor's quantizer; the first of these that holds.

    1. A tensor that trained quantization fixes has that form, and integers computed of integers are these.
    2. What a network that brings quantizers does not round, and no layer reads, has FINE_BITS, as far as no override
       names it; an input that its layers read has as many as leave their sums room.
    3. What two-tensor divisions alone read, directly or, of divisors, by way of sums, functions and their like, has
       FINE_BITS too, as far as no override names it: a divisor's steps tell most where it is small.
       What a function at the end reads has ARGUMENT_BITS, where outputs have room beyond the calibrated range.
    4. What holds values of a fixed tensor, and is not fixed itself, has its own options.
    5. An input that is given as integers is what the configuration says.
    6. Masked scores keep the step of the scores, in as many bits as the masked ones need besides.
    7. A tensor that holds values of another at its scale, such as a reshaped one, follows that, as far as no override
       names it. It is the same integers only where it has the same range: else it may be resolved finer.
    8. Any other has its own options.
    """
    asked: dict[str, QuantizerOptions] = {}
    rounded_finely = unquantized_tensors(graph, fixed) | divided_tensors(graph)
    fine = dict.fromkeys(rounded_finely, FINE_BITS) | input_bits(graph, fixed, constants)
    if not fixed:
        fine |= {symbol.name: ARGUMENT_BITS for symbol in final_arguments(graph, config) if symbol.name not in fine}
    for symbol in (*graph.inputs, *graph.symbols):
        name, own = symbol.name, config.activation_of(symbol.name)
        is_named = config.overrides_activation(name)
        source = symbol.inputs[0].name if symbol.operator.keeps_scale else ""
        followed = asked.get(source)
        scores = masked_scores_of(graph, symbol, ranges)
        if name in fixed:  # Case 1
            asked[name] = fixed[name]
        elif is_computed(symbol):  # Case 1
            asked[name] = Target(1.0, -UNLIMITED, UNLIMITED, pinned=True)
        elif name in fine and not is_named and name not in config.inputs:  # Case 2 or 3
            asked[name] = own.model_copy(update={"bits": max(own.bits, fine[name])})
        elif isinstance(followed, Target):  # Case 4
            asked[name] = own
        elif symbol.is_variable and name in config.inputs:  # Case 5
            asked[name] = config.inputs[name]
        elif scores is not None and not is_named:  # Case 6
            besides = extra_mask_bits(ranges[name], ranges[scores.name])
            asked[name] = own.model_copy(update={"bits": min(own.bits + besides, MOST_BITS)})
        elif isinstance(followed, InputConfig):  # Case 7, of given integers
            asked[name] = followed if not is_named and _is_same(ranges[name], ranges[source]) else own
        else:  # Case 7 or 8
            asked[name] = config.activation_of(name, followed)
    return asked


def _is_same(found: Range, other: Range) -> bool:
    """Whether two ranges are one: what is summed up in another order differs by rounding."""
    return bool(np.allclose((found.lo, found.hi), (other.lo, other.hi), rtol=1e-6, atol=0.0))


def own_target(graph: Graph, symbol: Symbol, options: QuantizerOptions, found: Range, never_negative: bool) -> Target:
    """The quantizer, with one scale, of a tensor that covers a range: the calibrated one, or the part that matters.

    Raises QuantizationError for an integer input of whose integers nothing is said.
    """
    is_parameter = graph.value(symbol) is not None
    if isinstance(options, Target):
        return options.with_one_scale
    if isinstance(options, InputConfig):
        return Target(options.scale, *options.limits, pinned=True, zero_point=options.zero_point)
    if symbol.is_variable and symbol.type.is_integer and not is_parameter:
        raise QuantizationError(
            f"input {symbol.name} is {symbol.type}; say what its integers are: {given_integers(symbol.name)}"
        )
    if not is_parameter and is_affine(options.quantizer, found, never_negative):
        lo = max(found.lo, 0.0) if never_negative else found.lo
        return affine_target(lo, found.hi, options.bits, options.is_signed)
    return symmetric_target(found.magnitude, options.bits, signed=not never_negative)


def is_affine(quantizer: str, found: Range, never_negative: bool) -> bool:
    """Whether a tensor of this range gets an affine quantizer; `auto` one where its steps are finer by LOPSIDED."""
    if quantizer != "auto":
        return quantizer == "affine"
    width = max(found.hi, 0.0) - min(found.lo, 0.0)
    return not never_negative and 2 * found.magnitude > LOPSIDED * width


OPTIONS = FactPass(
    "options",
    lambda facts: quantizer_options(facts.graph, facts.ranges, facts.config, facts.fixed, facts.constants),
    ("ranges", "fixed"),
)
OWN_QUANTIZERS = FactPass(
    "own",
    lambda facts: {
        symbol.name: facts.states.get(symbol.name)
        or own_target(
            facts.graph,
            symbol,
            facts.options[symbol.name],
            facts.ranges[symbol.name],
            facts.never_negative[symbol.name],
        )
        for symbol in (*facts.graph.inputs, *facts.graph.symbols)
    },
    ("options", "ranges", "never_negative", "states"),
)
