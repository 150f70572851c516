"""Weights that are rounded ahead, many layers at once: the same integers and notes as one after the other."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

import mrt
from mrt.execution import Threads
from mrt.execution.executor import Part, Result, Work
from mrt.quantization import expand
from mrt.quantization.algorithms import gptq_rounding
from mrt.symbol import NumpyRunner
from tests.quantization.test_gptq_rounding import IMAGES, OPTIONS, network

LAYERS = 3
"""That `network` rounds."""


@dataclass
class Elsewhere(Threads):
    """So many workers who are sent the weights alone, as bytes, and answer so. sent: the layers."""

    count: int = 2
    sent: list[str] = field(default_factory=list)

    @property
    def width(self) -> int:
        return self.count

    def in_order(
        self, work: Work[Result], parts: Iterable[Part], programs: Sequence[Any] = (), most: int | None = None
    ) -> Iterator[Result]:
        if work is not expand._rounded_apart:
            yield from super().in_order(work, parts, programs, most)
            return
        for part in list(parts):
            name, found = work(pickle.loads(pickle.dumps(part)))
            self.sent.append(name)
            yield name, pickle.loads(pickle.dumps(found))


def quantize(executor: Any, **options: object) -> mrt.QuantizedModel:
    given = {"preset": "mrt", "activation": {"bits": 12}, "bias_correction": "fast"} | options
    config = mrt.QuantizationConfig.model_validate(given)
    return mrt.quantize(network(), [IMAGES], config, runner=NumpyRunner(), executor=executor)


@pytest.fixture
def searches(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Grows with every weight that is rounded column by column; any work is then worth being done ahead."""
    found: list[int] = []
    successive = gptq_rounding.successive

    def counted(*args: Any) -> Any:
        found.append(1)
        return successive(*args)

    monkeypatch.setattr(gptq_rounding, "successive", counted)
    monkeypatch.setattr(expand, "MUCH", 0)
    return found


@pytest.mark.parametrize("name", ["affine", "a scale a layer", "6 bits"])
def test_the_same_integers_and_notes(name: str, searches: list[int]) -> None:
    weight = {"bits": 4, "rounding": "gptq"} | OPTIONS[name]
    alone, ahead = Elsewhere(count=1), Elsewhere()
    one = quantize(alone, weight=weight)
    count = len(searches)
    other = quantize(ahead, weight=weight)
    assert other.digest == one.digest and other.notes == one.notes
    assert not alone.sent and len(ahead.sent) == LAYERS
    assert len(searches) == 2 * count  # each was found once, and none once more here


def test_scales_that_come_to_be_others_are_no_matter(searches: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """What goes ahead is wrong about the weights, and so about bounds and scales behind them."""
    weight = {"bits": 4, "rounding": "gptq"}
    one = quantize(Elsewhere(count=1), weight=weight)
    count, asked = len(searches), expand.Asked.quantized

    def wrong(self: Any, *given: Any) -> Any:
        if given:
            return asked(self, *given)
        return asked(self, lambda weight: np.sign(weight.values).astype(np.int8))

    monkeypatch.setattr(expand.Asked, "quantized", wrong)
    other = quantize(Elsewhere(), weight=weight, activation={"bits": 12})
    assert other.digest == one.digest and other.notes == one.notes and len(searches) >= 2 * count


def test_little_work_is_not_sent_away() -> None:
    ahead = Elsewhere()
    quantize(ahead, weight={"bits": 4, "rounding": "gptq"})
    assert not ahead.sent
