"""What MRT exports it also reads: the same integers, from the files alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from corners import ends_of
from exported import NONE, Feeds, exported, facts, run
from formats import Format, in_every_format
from mxnet_exported import exported as exported_mxnet
from random_graphs import feeds_of, random_graph
from relay_exported import exported as exported_relay
from relay_rules import applicable, without_copies

import mrt
from mrt.model import QuantizedModel
from mrt.symbol import Array, Graph

GRAPHS, GROUPS = 36, 4
"""Random graphs, in as many tests."""


def graph_file(target: Format, files: Sequence[Path]) -> Path:
    """The one that load_model is given: parameters lie beside it."""
    (path,) = [path for path in files if path.suffix != ".params"]
    return path


def assert_loaded(graph: Graph, path: Path, samples: Sequence[Feeds]) -> None:
    """`load_model` of the file gives the graph's integers."""
    read = mrt.load_model(path)
    for feeds in samples:
        given = zip(read.inputs, feeds.values(), strict=True)
        found = read.evaluate({symbol.name: values.astype(symbol.dtype) for symbol, values in given})
        for symbol, a, b in zip(graph.outputs, found, graph.evaluate(feeds), strict=True):
            np.testing.assert_array_equal(a.reshape(b.shape), b, err_msg=f"{symbol}")


@in_every_format
def test_a_model_is_loaded_from_its_files(target: Format, model: QuantizedModel, tmp_path: Path) -> None:
    (entry,) = model.inputs
    path = graph_file(target, target.write(model, tmp_path))
    assert_loaded(model.graph, path, ends_of(entry))


@in_every_format
@pytest.mark.parametrize("group", range(GROUPS))
def test_random_graphs(target: Format, group: int) -> None:
    """By the runtime of the format, where there is one, and by what MRT reads, at the ends of the input's range."""
    for seed in range(group, GRAPHS, GROUPS):
        graph = random_graph(seed)
        try:
            target.assert_same(graph, feeds_of(graph, seed))
        except Exception as error:
            raise AssertionError(f"random_graph({seed}): {error}") from error


@pytest.mark.parametrize("group", range(GROUPS))
def test_onnx_runtime_without_optimizations(group: int) -> None:
    """The tests of formats run with all of them."""
    for seed in range(group, GRAPHS, GROUPS):
        graph = random_graph(seed)
        samples = feeds_of(graph, seed)
        for feeds, found in zip(samples, run(exported(graph), samples, NONE), strict=True):
            for a, b in zip(found, graph.evaluate(feeds), strict=True):
                np.testing.assert_array_equal(a, b, err_msg=f"random_graph({seed})")


def test_no_rule_of_relay_applies_to_random_graphs() -> None:
    """And without their copies some do, so that the tests of formats see what optimizers rewrite."""
    written = [exported_relay(random_graph(seed)) for seed in range(GRAPHS)]
    assert [rule for module in written for rule in applicable(module.text, module.params)] == []
    bare = [without_copies(module.text) for module in written]
    found = {
        rule.partition(":")[0] for text, m in zip(bare, written, strict=True) for rule in applicable(text, m.params)
    }
    assert found >= {"backward", "forward", "join"}


def test_random_graphs_reach_what_float32_rounds() -> None:
    """A checkpoint of MXNet is read as floats: in float32 some of these graphs give other integers."""
    differing = 0
    for seed in range(0, GRAPHS, 4):
        graph = random_graph(seed)
        read = mrt.from_mxnet(*exported_mxnet(graph, facts(graph)), keep_float64=False)
        for feeds in feeds_of(graph, seed):
            found = read.evaluate({x.name: feeds[x.name].astype(np.float32) for x in read.inputs})
            differing += any((a.reshape(b.shape) != b).any() for a, b in zip(found, graph.evaluate(feeds), strict=True))
    assert differing


LARGE = ("mobilenet_v1_0.25_224", "kwt1_speechcommands12")


@pytest.mark.slow
@in_every_format
@pytest.mark.parametrize("name", ["kws_dscnn", *(pytest.param(name, marks=pytest.mark.exhaustive) for name in LARGE)])
def test_networks_are_loaded_from_their_files(
    target: Format,
    name: str,
    tmp_path: Path,
    network: Callable[[str, int], tuple[QuantizedModel, list[dict[str, Array]]]],
) -> None:
    model, (image, *_) = network(name, 8)
    (entry,) = model.inputs
    *_, ends = ends_of(entry)
    assert_loaded(model.graph, graph_file(target, target.write(model, tmp_path)), [image, ends])
