"""What is measured of values, outputs and accuracy, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from mrt.report.measure.network import accuracy_of
from mrt.report.measure.numbers import width
from mrt.report.measure.outputs import output_noises
from mrt.report.measure.values import KEPT, Seen
from mrt.symbol import GraphBuilder, TensorType, find_operator

RANDOM = np.random.default_rng(5)


def test_values_are_counted_as_numpy_counts_them() -> None:
    samples = [np.maximum(RANDOM.normal(size=(1, 6, 7, 5)), 0).astype(np.float32) for _ in range(4)]
    everything = np.concatenate(samples)
    seen = Seen((1, 6, 7, 5), 4, 1, (0.0, 1.5, 0.01))
    for sample in samples:
        seen.add(sample)
    facts = seen.facts
    assert facts is not None and facts.count == everything.size
    assert facts.zeros == pytest.approx((everything == 0).mean(), rel=1e-3)
    assert facts.clipped == pytest.approx((everything > 1.51).mean(), rel=1e-3)
    histogram = facts.histogram
    assert (histogram.lo, histogram.hi) == pytest.approx((0, everything.max()), rel=1e-5)
    counts, _ = np.histogram(everything[everything != 0], 96, (0, everything.max()))
    assert np.abs(np.cumsum(histogram.counts) - np.cumsum(counts)).max() <= 1  # the ends are rounded
    assert facts.channel_count == 6 and [channel.channel for channel in facts.channels] == list(range(6))
    for channel in facts.channels:
        own = everything[:, channel.channel]
        wanted = [own.min(), *np.quantile(own, [0.01, 0.25, 0.5, 0.75, 0.99]), own.max()]
        np.testing.assert_allclose(channel.spread, wanted, rtol=1e-2, atol=1e-3)


def test_of_many_values_some_are_kept_and_the_rest_is_counted() -> None:
    seen = Seen((1, 4 * KEPT), 2, None, None)
    for _ in range(2):
        seen.add(RANDOM.normal(size=(1, 4 * KEPT)).astype(np.float32))
    facts = seen.facts
    assert facts is not None and facts.count == 8 * KEPT and facts.channels == [] and facts.errors is None
    assert sum(facts.histogram.counts) == KEPT
    middle = facts.histogram.counts[46:50]
    assert min(middle) > 0.9 * max(middle)


@pytest.mark.parametrize("moved", [False, True])
def test_parts_of_an_output_are_what_the_network_joins(moved: bool) -> None:
    """Boxes and scores in one tensor: the error of scores does not show in the whole."""
    builder = GraphBuilder()
    boxes, scores = (builder.input(name, TensorType((1, size, 50))) for name, size in (("boxes", 4), ("scores", 3)))
    output = builder.apply(find_operator("Concat")(dim=1), [boxes, scores], "joined")
    if moved:
        output = builder.apply(find_operator("transpose")(axes=(0, 2, 1)), [output], "moved")
    (noise,) = output_noises(builder.graph([output]), [], None)
    exact = np.concatenate([300 * np.ones((1, 4, 50)), 0.5 * np.ones((1, 3, 50))], 1).astype(np.float32)
    real = exact + np.concatenate([0.3 * np.ones((1, 4, 50)), 0.05 * np.ones((1, 3, 50))], 1)
    for _ in range(2):
        noise.add(*(x.transpose(0, 2, 1) if moved else x for x in (exact, real)))
    facts = noise.facts()
    assert facts.samples == 2
    assert facts.sqnr is not None and facts.sqnr > 59
    assert [(part.name, part.axis, part.start, part.stop, part.how) for part in facts.parts] == [
        ("boxes", 2 if moved else 1, 0, 4, "joined"), ("scores", 2 if moved else 1, 4, 7, "joined")
    ]  # fmt: skip
    assert [part.sqnr for part in facts.parts] == pytest.approx([60, 20], abs=0.01)


def test_parts_that_nothing_joins_are_runs_of_channels_of_like_reach() -> None:
    builder = GraphBuilder()
    (noise,) = output_noises(builder.graph([builder.input("x", TensorType((1, 7, 9)))]), [], None)
    reach = np.array([300, 200, 250, 400, 0.9, 0.5, 1.0])[:, None]
    exact = (reach * RANDOM.uniform(0.5, 1, (1, 7, 9))).astype(np.float32)
    noise.add(exact, exact * 1.01)
    assert [(part.axis, part.start, part.stop, part.how) for part in noise.facts().parts] == [
        (1, 0, 4, "ranges"), (1, 4, 7, "ranges")
    ]  # fmt: skip
    (alike,) = output_noises(builder.graph([builder.input("y", TensorType((1, 7, 9)))]), [], None)
    alike.add(RANDOM.uniform(1, 2, (1, 7, 9)), np.ones((1, 7, 9)))
    assert alike.facts().parts == []


def test_the_error_of_a_difference_is_that_of_the_paired_samples() -> None:
    right, also = RANDOM.random(200) < 0.8, RANDOM.random(200) < 0.75
    summary = {
        "samples": 200,
        "float": {"top1": float(right.mean())},
        "integer": {"top1": float(also.mean())},
        "lost": int((right & ~also).sum()),
        "won": int((also & ~right).sum()),
        "agreement": 0.9,
        "sqnr_db": None,
        "bit_exact_samples": 3,
    }
    facts, differences = accuracy_of(summary), also.astype(float) - right
    assert facts.difference == pytest.approx(differences.mean())
    assert facts.standard_error == pytest.approx(differences.std() / np.sqrt(200), rel=1e-5)
    unlabelled = accuracy_of({**{k: v for k, v in summary.items() if k not in ("lost", "won")}})
    assert unlabelled.difference is None and unlabelled.standard_error is None


@pytest.mark.parametrize(("lo", "hi", "bits"), [(-128, 127, 8), (0, 255, 9), (0, 0, 1), (-1, 0, 1), (-129, 0, 8.01)])
def test_bits_of_an_interval(lo: int, hi: int, bits: float) -> None:
    assert width(lo, hi) == bits


@pytest.mark.parametrize(("order", "found"), [((0, 1), ["boxes", "scores"]), ((1, 0), ["a", "b"])])
def test_outputs_are_called_as_by_the_network_where_their_places_are_its(
    order: tuple[int, int], found: list[str]
) -> None:
    """Behind a tail that gives them in another order, names would be those of other outputs."""
    builder, tail = GraphBuilder(), GraphBuilder()
    kind = TensorType((1, 4))
    ends = [builder.apply(find_operator("relu")(), [builder.input(f"{name}_in", kind)], name) for name in "ab"]
    graph = builder.graph(ends)
    sources = [tail.input(name, kind) for name in "ab"]
    tails = tail.graph([tail.apply(find_operator("softmax")(), [sources[i]], f"end{i}") for i in order])
    assert [noise.name for noise in output_noises(graph, ["boxes", "scores"], tails)] == found
    assert [noise.name for noise in output_noises(graph, ["boxes", "scores"], None)] == ["boxes", "scores"]
    assert [noise.name for noise in output_noises(graph, ["one"], None)] == ["a", "b"]
