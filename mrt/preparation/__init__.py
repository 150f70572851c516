"""Float to float: brings a graph that was read into the normal form that is quantized."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

from mrt.messages import counted
from mrt.options import Options
from mrt.preparation.average_pooling import AveragePoolingToSum
from mrt.preparation.collapse_to_table import CollapseToTable
from mrt.preparation.cut_tail import cut_tail, join_tail, named_symbols
from mrt.preparation.drop_border_taps import DropBorderTaps
from mrt.preparation.drop_identities import DropIdentities
from mrt.preparation.finite_masks import FiniteMasks
from mrt.preparation.finite_parameters import CheckFiniteParameters
from mrt.preparation.fold_batch_norm import FoldBatchNorm
from mrt.preparation.fold_constants import FoldConstants
from mrt.preparation.mask_sums import MaskSums
from mrt.preparation.nan_guards import NanGuards
from mrt.preparation.patterns import SpelledOut
from mrt.preparation.quantized_constants import QuantizedConstants
from mrt.preparation.scalars_to_constants import ScalarsToConstants
from mrt.preparation.separate_bias import SeparateBias
from mrt.preparation.separate_pad import SeparatePad
from mrt.preparation.share_equal import ShareEqual
from mrt.preparation.zero_points import IntegerZeroPoints
from mrt.symbol import Graph, Pass, Refusal, run_passes
from mrt.symbol.rebatch import check_outputs
from mrt.symbol.sizes import check_sizes
from mrt.symbol.states import check_states_stay

__all__ = ["PIPELINE", "PreparationConfig", "Prepared", "prepare"]

PIPELINE: tuple[Pass, ...] = (
    DropIdentities(),
    IntegerZeroPoints(),
    QuantizedConstants(),
    FoldConstants(),
    ScalarsToConstants(),
    AveragePoolingToSum(),
    FoldConstants(),
    FoldBatchNorm(),
    SeparatePad(),
    DropBorderTaps(),
    SeparateBias(),
    FoldConstants(),
    DropIdentities(),
    CollapseToTable(),
    ShareEqual(),
)
"""The passes in order, once parameters are known to be finite.

Constants are folded before what looks for them and after what makes them. Equal symbols are shared last: what is folded
into its reader must have no other."""


class PreparationConfig(Options):
    """The `prepare` section.

    split: names or fnmatch patterns of operators of the graph as read; they and all that follows stay float, as
    post-processing, or were left out by the reader that was given them, which could not read them. cut_softmax:
    whether softmaxes and their logarithms do that only reach outputs.
    """

    split: tuple[str, ...] = ()
    cut_softmax: bool = True


@dataclass(frozen=True)
class Prepared:
    """A graph ready to be calibrated and quantized.

    graph: the prepared float graph. postprocess: the float tail that was cut off, whose inputs are named like the
    outputs of `graph`, in order; None where nothing was cut. refusals: what passes left alone, and why. notes: ranges
    of trained quantization that were tuned, and what the reader left out.
    """

    graph: Graph
    postprocess: Graph | None
    refusals: tuple[Refusal, ...]
    notes: tuple[str, ...] = ()


_DEFAULTS = PreparationConfig()


def prepare(graph: Graph, config: PreparationConfig = _DEFAULTS, tune_ranges: bool = False) -> Prepared:
    """Cuts the float tail off and runs the passes of PIPELINE on the rest; outputs stay what they were, to rounding.

    tune_ranges: whether ranges of FakeQuantize are moved so that zero is an integer, by less than a step; outputs then
    differ by that.
    Raises ConfigError for a name in `split` that matches nothing, DataError for NaN or infinity in a parameter,
    GraphError for an output, or a tensor that crosses the cut, which depends on an input without having the batch at
    axis 0: samples could not be told apart there, for a state whose next value is behind the cut, and for a graph that
    makes far more elements than it is given.
    """
    check_sizes(graph)
    check_outputs(graph)
    kept = named_symbols(graph, config.split, graph.left_out)
    spelled = run_passes(graph, (SpelledOut(kept), NanGuards(kept), MaskSums(kept)))
    cut = cut_tail(
        CheckFiniteParameters()(FiniteMasks()(spelled.made)), config.split, config.cut_softmax, graph.left_out
    )
    check_outputs(cut.body)
    check_states_stay(graph, cut.body)
    passes = tuple(
        replace(step, tune=tune_ranges) if isinstance(step, IntegerZeroPoints) else step for step in PIPELINE
    )
    result = run_passes(cut.body, passes)
    refusals = (*spelled.refusals, *cut.refusals, *result.refusals)
    notes = (*graph.notes, *_left_out(graph, bool(config.split)), *result.notes)
    if cut.tail is None:
        return Prepared(result.graph, None, refusals, notes)
    body, tail = join_tail(result.graph, cut.tail)
    return Prepared(body, tail, refusals, notes)


def _left_out(graph: Graph, is_asked: bool) -> tuple[str, ...]:
    """A note of what was left out while the model was read, by a split that was asked for, or as it ends with a choice
    among its results."""
    if not graph.left_out:
        return ()
    kinds = Counter(graph.left_out.values()).most_common()
    found = ", ".join(f"{kind} ×{count}" for kind, count in kinds[:_KINDS_SHOWN])
    what = "what follows prepare.split" if is_asked else "the choice among results at its end"
    remedy = "" if is_asked else ", on which it has to be run"
    return (
        f"{what} cannot be read and is no part of the model ({counted(len(graph.left_out), 'operator')}: "
        f"{found}{', …' if len(kinds) > _KINDS_SHOWN else ''}); its outputs are "
        f"{', '.join(output.name for output in graph.outputs)}{remedy}",
    )


_KINDS_SHOWN = 8
