"""The Relay reader: TVM's text format and its parameter files into a Graph, one converter per Relay operator."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from typing import Any

from mrt.frontend.shared.format import Format
from mrt.frontend.shared.inputs import ReadOptions, Shapes, Values, read_options
from mrt.paths import as_path
from mrt.symbol import Graph

__all__ = ["FORMAT", "from_relay", "read_relay_file"]

_DEFINITION = re.compile(rb"^\s*(#\[version\s*=|def\s+@)", re.MULTILINE)
"""A line that a Relay text has near its beginning."""


def from_relay(
    text: str,
    params: Mapping[str, Any] | bytes | None = None,
    batch: int = 1,
    shapes: Shapes | None = None,
    values: Values | None = None,
    split: Iterable[str] = (),
    random_params: bool = False,
) -> Graph:
    """The float graph of a Relay text, as mod.astext() prints it: of its function "main", or of its only one.

    params: values of the function's arguments by name, or the content of a file that relay.save_param_dict wrote.
    Arguments with a value become parameters of the graph, the others inputs; values that no argument is called after
    are left alone. The printer puts "v" before a name that does not begin with a letter, which is known here.

    batch, shapes, values, split, random_params: as `load_model` takes them. Every float becomes float32. Symbols are
    called after the operator and the number that the text gives its result, as conv2d_4, or as `let` calls it.
    Functions that are called are inlined, values that do not depend on the data are computed, the constant added to a
    convolution or matrix product becomes its bias, and a channels-last network is turned into a channels-first one,
    whose inputs and outputs stay as they were.

    Raises ModelFileError where the text, its metadata or the parameters are damaged; GraphError where the module is
    malformed or dynamic; DataError where `params` do not fit or lack a weight; UnsupportedOperatorError listing every
    operator that is not covered, with the lines, and every use of a covered one that is not.
    """
    from mrt.frontend.relay.reader import read_text

    return read_text(text, params, read_options(batch, shapes, values, split, random_params=random_params))


def read_relay_file(path: str | os.PathLike[str], options: ReadOptions | None = None) -> Graph:
    """The float graph of a file of Relay text, with the parameters of the file beside it that ends in .params, if any.

    Raises as from_relay does, ModelFileError also where a file cannot be read.
    """
    from mrt.frontend.relay.reader import read_file

    return read_file(as_path(path, "path", to_read=True), options or ReadOptions())


FORMAT = Format(
    name="relay",
    extra=None,
    looks_like=lambda start: _DEFINITION.search(start) is not None,
    read=read_relay_file,
    file="a Relay text",
    takes_shapes=True,
    takes_values=True,
    takes_random_params=True,
)
