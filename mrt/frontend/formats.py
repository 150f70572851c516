"""The formats of model files that are read, and the reader for any of them."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

from mrt.errors import GraphError, ModelFileError
from mrt.frontend.shared.batch_first import BatchFirst
from mrt.frontend.shared.format import Format
from mrt.frontend.shared.inputs import BatchAxes, ReadOptions, Shapes, Values, read_options
from mrt.messages import short
from mrt.paths import as_path
from mrt.plugins import load_plugins
from mrt.symbol import Graph
from mrt.symbol.states import with_states

_READ = 4096
"""How much of a file is looked at."""

FORMATS: tuple[Format, ...] = tuple(
    import_module(f"mrt.frontend.{folder}").FORMAT
    for folder in (
        "torch",
        "tflite",
        "openvino",
        "mxnet",
        "relay",
        "onnx",  # last, since one byte tells it
    )
)
"""MRT's own, in the order in which a file is held against them."""

_ADDED: list[Format] = []


def add_format(format: Format) -> None:
    """Adds a plug-in's format, which is tried before MRT's own; GraphError where there is one of its name.

    Its `read` may also take path, batch and shapes, as all did once.
    """
    if any(format.name == known.name for known in (*_ADDED, *FORMATS)):
        raise GraphError(f"there are two formats called {format.name}; rename one")
    if len(inspect.signature(format.read).parameters) == _ARGUMENTS_ONCE:
        format = replace(format, read=_with_options(format.read))
    _ADDED.append(format)


_ARGUMENTS_ONCE = 3


def _with_options(read: Callable[..., Any]) -> Callable[[Path, ReadOptions], Graph]:
    return lambda path, options: read(path, options.batch, options.shapes)


def all_formats() -> tuple[Format, ...]:
    """All that are read, in the order in which a file is held against them.

    Those of plug-ins come first: MRT's own take every zip archive and every JSON, to say what is wrong with it.
    """
    load_plugins("formats")
    return (*_ADDED, *FORMATS)


def format_of(path: Path) -> Format:
    """The format of a model file, told by its content; ModelFileError where it is of none.

    A file that no format recognises is taken for what its suffix says: its reader explains what is damaged.
    """
    try:
        with path.open("rb") as file:
            start = file.read(_READ)
    except OSError as error:
        raise ModelFileError(f"{path} cannot be read: {error.strerror}") from None
    formats = all_formats()
    for format in formats:
        if format.looks_like(start):
            return format
    for format in formats:
        if path.suffix.lower() == format.suffix:
            return format
    *files, last = (format.file for format in formats)
    raise ModelFileError(f"{path} is no model that is read: {', '.join(files)} or {last} is needed")


def load_model(
    path: str | os.PathLike[str],
    batch: int = 1,
    shapes: Shapes | None = None,
    values: Values | None = None,
    split: Iterable[str] = (),
    states: Mapping[str, str] | None = None,
    initial: Values | None = None,
    batch_axes: BatchAxes | None = None,
    random_params: bool = False,
) -> Graph:
    """The float graph of a model file, its format told by its content.

    An ONNX file; an MXNet NAME-symbol.json with its NAME-NNNN.params beside it, of which the highest number is taken;
    a Relay text with its parameters beside it; a TFLite file; the .xml of an OpenVINO IR with its .bin beside it; a
    .pt2 archive of torch.export.save; what plug-ins read.

    batch: the size of a dynamic first axis. shapes: of inputs by name; they fix what else the file leaves open, must
    agree with what it states, and may be left out where it states everything. What follows from them is inferred.
    values: numbers or arrays by the names of inputs, which are constants of the graph then; one number fills its
    input. split: names or patterns of operators, as `PreparationConfig.split` has them: where those or what follows
    them cannot be read they are left out, and the tensors before them are outputs. states, initial: as `with_states`
    takes them, for files in which what is kept between calls is inputs and outputs. batch_axes: by the names of inputs
    and outputs that have their batch elsewhere than at axis 0; the graph has it at axis 0 of all, see `batch_first`.
    random_params: parameters that a Relay text has no values for are drawn, always the same ones, for trying alone; the
    graph's notes say so.

    Raises ModelFileError where the file is missing, is a folder, or is of no format that is read, GraphError where
    a size is still open or shapes or values do not fit the file, PluginError where a plug-in fails, and whatever the
    format's reader raises.
    """
    path = as_path(path, "path", to_read=True)
    options = read_options(batch, shapes, values, split, batch_axes, random_params)
    if path.is_dir():
        raise ModelFileError(f"{path} is a folder; a model file is needed")
    if not path.exists():
        raise ModelFileError(f"{path} does not exist; give the path of a model file")
    format = format_of(path)
    _check_taken(format, options)
    graph = format.read(path, options)
    turned = BatchFirst(options.batch_axes)(graph) if options.batch_axes else graph
    return with_states(turned, states or {}, initial)


def _check_taken(format: Format, options: ReadOptions) -> None:
    """GraphError where the reader of the format heeds less than is given."""
    for what, given, taken in (
        ("shapes", options.shapes, format.takes_shapes),
        ("values", options.values, format.takes_values),
    ):
        if given and not taken:
            raise GraphError(f"{what} are given for {', '.join(given)}, but the reader of {format.file} takes none")
    if options.random_params and not format.takes_random_params:
        raise GraphError(
            f"random_params is given, but {format.file} has its parameters; only a Relay text may lack them"
        )


def batch_first(graph: Graph, axes: BatchAxes) -> Graph:
    """The same network with its batch at axis 0 of every input and output, as all that is done with a graph needs it.

    axes: the batch axis by the names of inputs and outputs that have it elsewhere; None for one without a batch, which
    gets an axis of length 1. Those of outputs are found where the operators tell. The other axes keep their order: an
    input [T, B, C] with axis 1 is given as [B, T, C]. Data, and what is made of the graph, have that order.

    Raises GraphError for a name or an axis that there is none of, where inputs have different batches, and for an
    output whose batch is not found.
    """
    if not isinstance(graph, Graph):
        raise GraphError(f"graph is {short(graph)}; an mrt.Graph is needed, such as mrt.load_model gives")
    return BatchFirst(axes)(graph)
