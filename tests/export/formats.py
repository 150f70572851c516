"""The formats that integer graphs are exported in, and who computes what their files mean."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import exported
import mxnet_exported
import numpy as np
import pytest
import relay_exported

from mrt.model import QuantizedModel
from mrt.symbol import Array, Graph
from mrt.symbol.quantized_tensor import TensorQuantization

Results = Sequence[Sequence[Array]]
"""For each sample, an array for each output."""


@dataclass(frozen=True)
class Format:
    """name: as QuantizedModel's method to_<name>. export: what is written of a graph whose inputs lie in given ranges.
    load: the same from the files that the method wrote. run: what it computes for samples, by its runtime or, where
    there is none here, by its reader. read: what it computes by its reader, where that is not `run`. is_typed: whether
    values keep their dtypes; else they are float64.
    """

    name: str
    export: Callable[..., Any]
    load: Callable[[Graph, Sequence[Path]], Any]
    run: Callable[[Any, Sequence[exported.Feeds]], list[list[Array]]]
    read: Callable[[Any, Sequence[exported.Feeds]], list[list[Array]]] | None = None
    is_typed: bool = True

    def write(self, model: QuantizedModel, folder: Path, batch: int | None = None) -> Sequence[Path]:
        """The files of a quantized model in this format, called net in the folder."""
        found: Sequence[Path] = getattr(model, f"to_{self.name}")(folder / "net.model", batch)
        return found

    def assert_same(
        self,
        graph: Graph,
        samples: Sequence[exported.Feeds],
        inputs: Sequence[TensorQuantization] | None = None,
        expected: Results | None = None,
    ) -> None:
        """The file gives the graph's integers, in their shapes and dtypes, and so does what MRT reads of it."""
        self.assert_written(graph, self.export(graph, inputs), samples, expected)

    def assert_written(
        self, graph: Graph, written: Any, samples: Sequence[exported.Feeds], expected: Results | None = None
    ) -> Results:
        """Gives what it computes. expected: what the graph does, for each sample, where that is known."""
        expected = [graph.evaluate(feeds) for feeds in samples] if expected is None else expected
        results = self.run(written, samples)
        self._assert_found(graph, results, expected)
        if self.read is not None:
            self._assert_found(graph, self.read(written, samples), expected)
        return results

    def _assert_found(self, graph: Graph, results: Results, expected: Results) -> None:
        for found, meant in zip(results, expected, strict=True):
            for symbol, a, b in zip(graph.outputs, found, meant, strict=True):
                assert a.shape == symbol.shape or (not self.is_typed and a.shape == (1,)), symbol
                assert a.dtype.name == (symbol.dtype if self.is_typed else "float64"), symbol
                np.testing.assert_array_equal(a.reshape(b.shape), b, err_msg=f"{symbol} {symbol.operator}")


FORMATS = (
    Format("onnx", exported.exported, exported.load, exported.run, exported.read),
    Format("relay", relay_exported.exported, relay_exported.load, relay_exported.run),
    Format("mxnet", mxnet_exported.exported, mxnet_exported.load, mxnet_exported.run, is_typed=False),
)
in_every_format = pytest.mark.parametrize("target", FORMATS, ids=lambda target: target.name)
"""Runs a test once for each format, its argument `target`."""
