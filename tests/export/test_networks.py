"""Whole networks, quantized and exported in every format: the integers that the certificate is about."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from corners import ends_of
from formats import Format, in_every_format

from mrt.model import QuantizedModel
from mrt.symbol import Array


@in_every_format
@pytest.mark.parametrize("quantizer", ["symmetric", "affine"])
def test_digits(
    target: Format, quantizer: str, tmp_path: Path, digits: Callable[[str], tuple[QuantizedModel, Array, Array]]
) -> None:
    """Every test sample is read as by the integer graph, by a model for 500 samples at once."""
    model, x, labels = digits(quantizer)
    graph, feeds = model.rebatched(len(x)).graph, model.quantize_inputs(x)
    written = target.load(graph, target.write(model, tmp_path, len(x)))
    ((found,),) = target.assert_written(graph, written, [feeds])
    assert np.mean(found.argmax(axis=1) == labels) > 0.97


NETWORKS = [
    ("kws_dscnn", 8),
    ("kws_dscnn", 12),
    *(
        pytest.param(*case, marks=pytest.mark.exhaustive)
        for case in [("resnet20_cifar10", 12), ("kwt1_speechcommands12", 8)]
    ),
]
"""By how many bits."""
Network = Callable[[str, int], tuple[QuantizedModel, list[dict[str, Array]]]]
Meant = Callable[[str, int], tuple[list[dict[str, Array]], list[list[Array]]]]


@pytest.fixture(scope="module")
def meant(network: Network) -> Meant:
    """From a name and a width to samples, ordinary ones and the ends of their ranges, and the graph's integers."""

    @cache
    def made(name: str, bits: int) -> tuple[list[dict[str, Array]], list[list[Array]]]:
        model, ordinary = network(name, bits)
        (entry,) = model.inputs
        samples = [*ordinary, *ends_of(entry)]
        return samples, [model.graph.evaluate(feeds) for feeds in samples]

    return made


@pytest.mark.sampled(2)
@pytest.mark.slow
@in_every_format
@pytest.mark.parametrize(("name", "bits"), NETWORKS)
def test_networks(target: Format, name: str, bits: int, tmp_path: Path, network: Network, meant: Meant) -> None:
    model, _ = network(name, bits)
    written = target.load(model.graph, target.write(model, tmp_path))
    target.assert_written(model.graph, written, *meant(name, bits))
