"""The OpenVINO reader: an IR of an .xml and a .bin file into a Graph, one converter per operator."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING

from mrt.frontend.openvino.signature import looks_like_ir
from mrt.frontend.shared.format import Format
from mrt.frontend.shared.inputs import ReadOptions, Shapes, Values, read_options
from mrt.symbol import Graph

if TYPE_CHECKING:
    import openvino

__all__ = ["FORMAT", "from_openvino"]


def from_openvino(
    model: str | os.PathLike[str] | openvino.Model,
    batch: int = 1,
    shapes: Shapes | None = None,
    values: Values | None = None,
    split: Iterable[str] = (),
) -> Graph:
    """The float graph of an OpenVINO model, given as the path of its .xml, with the .bin beside it, or loaded. Needs
    the extra `openvino`.

    batch, shapes, values, split: as `load_model` takes them. Every float becomes float32. Symbols are called as the
    operators are. What does not depend on the data is computed, but for weights that are stored quantized, as integers
    with scales or through FakeQuantize: they stay so. The constant added to a convolution or matrix product becomes its
    bias. A model that is given loaded is not changed.

    Raises ModelFileError where the files are no whole IR, or openvino is not installed; UnsupportedOperatorError where
    operators, or uses of an operator, are not covered (operators all at once); GraphError where another dimension is
    dynamic, or an operator does not fit its inputs.
    """
    return _read(model, read_options(batch, shapes, values, split))


def _read(model: str | os.PathLike[str] | openvino.Model, options: ReadOptions) -> Graph:
    FORMAT.check_installed()
    from mrt.frontend.openvino.reader import read_graph

    return read_graph(model, options)


FORMAT = Format(
    name="openvino",
    extra="openvino",
    looks_like=looks_like_ir,
    read=_read,
    file="OpenVINO's .xml",
    takes_shapes=True,
    takes_values=True,
)
