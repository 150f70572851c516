"""Graph to graph: the same integers by operators that compile to less."""

from __future__ import annotations

from typing import Any

from mrt.backend.machine import Machine
from mrt.backend.rewrites.assigned_values import AssignedValues
from mrt.backend.rewrites.batch_norm_as_scale import BatchNormAsScale
from mrt.backend.rewrites.bias_into_sum import BiasIntoSum
from mrt.backend.rewrites.clip_before_scaling import ClipBeforeScaling
from mrt.backend.rewrites.clip_limits_as_parameters import ClipLimitsAsParameters
from mrt.backend.rewrites.constant_operators import ConstantOperators
from mrt.backend.rewrites.data_in_bytes import DataInBytes
from mrt.backend.rewrites.deconvolution_as_convolution import DeconvolutionAsConvolution
from mrt.backend.rewrites.int16_operands import Int16Operands
from mrt.backend.rewrites.interleave_channels import InterleaveChannels
from mrt.backend.rewrites.known_bounds import Bounds
from mrt.backend.rewrites.made_again import MadeAgain
from mrt.backend.rewrites.merge_reshapes import MergeReshapes
from mrt.backend.rewrites.merge_row_slices import MergeRowSlices
from mrt.backend.rewrites.merge_slices import MergeSlices
from mrt.backend.rewrites.narrow_before_moving import NarrowBeforeMoving
from mrt.backend.rewrites.narrow_to_int16 import NarrowToInt16
from mrt.backend.rewrites.phases_joined_last import PhasesJoinedLast
from mrt.backend.rewrites.positions_as_channels import PositionsAsChannels
from mrt.backend.rewrites.proven_constants import ProvenConstants
from mrt.backend.rewrites.rewrite import Facts, Rewrite
from mrt.backend.rewrites.rows_of_states import RowsOfStates
from mrt.backend.rewrites.slices_by_begin import SlicesByBegin
from mrt.backend.rewrites.squares import Squares
from mrt.backend.rewrites.taps_as_channels import TapsAsChannels
from mrt.backend.rewrites.tile_as_concat import TileAsConcat
from mrt.backend.rewrites.times_ramp_of_itself import TimesRampOfItself
from mrt.backend.rewrites.tokens_of_maps import TokensOfMaps
from mrt.backend.rewrites.turned_operands import TurnedOperands
from mrt.backend.rewrites.widen_clips import WidenClips
from mrt.symbol import Graph
from mrt.symbol.passes import PassResult, run_passes

REWRITES: tuple[type[Rewrite[Any]], ...] = (
    RowsOfStates,
    AssignedValues,
    ConstantOperators,
    ProvenConstants,
    BatchNormAsScale,
    MergeRowSlices,
    MergeSlices,
    NarrowBeforeMoving,
    InterleaveChannels,
    TurnedOperands,
    MergeReshapes,
    TokensOfMaps,
    DeconvolutionAsConvolution,
    PositionsAsChannels,
    PhasesJoinedLast,
    TapsAsChannels,
    TileAsConcat,
    TimesRampOfItself,
    Squares,
    Int16Operands,
    DataInBytes,
    BiasIntoSum,
    ClipBeforeScaling,
    WidenClips,
    NarrowToInt16,
    ClipLimitsAsParameters,
    SlicesByBegin,
    MadeAgain,
)
"""In the order in which they run."""


def apply_rewrites(graph: Graph, machine: Machine, known: Bounds) -> tuple[PassResult, Bounds]:
    """What REWRITES make of a graph for a machine, and the intervals of all its tensors by name.

    known: intervals of tensors of the graph given; what they leave open follows from dtypes.
    """
    facts = Facts(machine, known)
    result = run_passes(graph, [each(facts) for each in REWRITES])
    return result, facts.bounds(result.graph)
