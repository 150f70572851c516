"""The float graph of whatever a caller has: a path, a module or program of PyTorch, a model of another library."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from mrt.errors import GraphError
from mrt.frontend.formats import batch_first, load_model
from mrt.frontend.shared.inputs import BatchAxes, Shapes, Values
from mrt.messages import short
from mrt.samples import LABELS
from mrt.symbol import Graph
from mrt.symbol.states import with_states


@dataclass(frozen=True, eq=False)
class Reading:
    """What a caller says of a model beside it, as `load_model` takes it.

    example_inputs: what forward() of a module of PyTorch is called with: a tensor, a tuple, or a mapping by the names
    of its parameters. first_batch: gives a batch of the data, for what nobody says; None without data.
    """

    split: tuple[str, ...] = ()
    example_inputs: Any = None
    shapes: Shapes | None = None
    values: Values | None = None
    states: Mapping[str, str] | None = None
    initial: Values | None = None
    batch_axes: BatchAxes | None = None
    first_batch: Callable[[], Any] | None = None


@dataclass(frozen=True, eq=False)
class Original:
    """The file that a float network was read from, to read it anew: the network need not be held meanwhile."""

    path: str | os.PathLike[str]
    reading: Reading

    @classmethod
    def of(cls, model: object, reading: Reading) -> Original | None:
        """That of a model; None where it is no file."""
        return cls(model, replace(reading, first_batch=None)) if isinstance(model, (str, os.PathLike)) else None

    def read(self, first_batch: Callable[[], Any]) -> Graph:
        """The network; raises what its reader raises, also where the file is gone."""
        return read_anything(self.path, replace(self.reading, first_batch=first_batch))


def read_anything(model: object, reading: Reading) -> Graph:
    """The float graph of a model: an mrt.Graph, a path of any format that is read, a torch.nn.Module or
    torch.export.ExportedProgram, an onnx.ModelProto, an openvino.Model or a tvm.IRModule.

    No library is loaded to know its models; who has one has loaded it. Raises GraphError for anything else and for an
    option that does not apply, and what the reader of the format raises.
    """
    is_module = _is(model, "torch.nn", "Module")
    if reading.example_inputs is not None and not is_module:
        raise GraphError("example_inputs are given, and no torch.nn.Module, which alone is traced with examples")
    if isinstance(model, (str, os.PathLike)):
        return _loaded(model, reading)
    if is_module:
        graph = _from_module(model, reading)
    elif isinstance(model, Graph):
        given = [name for name in ("shapes", "values") if getattr(reading, name)]
        if given:
            raise GraphError(f"{' and '.join(given)} are given, and a graph that is read already; give its file")
        graph = model
    else:
        read = next((read for module, name, read in _READERS if _is(model, module, name)), None)
        if read is None:
            raise GraphError(f"graph is {short(model)}; {_NEEDED}")
        graph = read(model, shapes=reading.shapes, values=reading.values, split=reading.split)
    turned = batch_first(graph, reading.batch_axes) if reading.batch_axes else graph
    return with_states(turned, reading.states or {}, reading.initial)


_NEEDED = (
    "an mrt.Graph, the path of a model file, a torch.nn.Module, a torch.export.ExportedProgram, an onnx.ModelProto, an "
    "openvino.Model or a tvm.IRModule is needed"
)


def _is(model: object, module: str, name: str) -> bool:
    kind = getattr(sys.modules.get(module), name, None)
    return isinstance(kind, type) and isinstance(model, kind)


def _loaded(path: str | os.PathLike[str], reading: Reading) -> Graph:
    """The graph of a file; sizes that it leaves open are those of the data, where these have names."""

    def load(shapes: Shapes | None) -> Graph:
        options = reading.values, reading.split, reading.states, reading.initial, reading.batch_axes
        return load_model(path, 1, shapes, *options)

    try:
        return load(reading.shapes)
    except GraphError as error:
        first = error
    batch = reading.first_batch() if reading.shapes is None and reading.first_batch is not None else None
    failures: dict[str, None] = {}
    for sizes in _sizes(batch[0] if isinstance(batch, (tuple, list)) and batch else batch):
        try:
            return load(sizes)
        except GraphError as error:
            told = ", ".join(f"{name}={','.join(map(str, shape))}" for name, shape in sizes.items())
            failures |= (
                {} if str(error) == str(first) else {f"with the sizes of the first batch, {told}: {error}": None}
            )
    raise GraphError("; ".join([str(first), *failures])) from None


def _sizes(batch: Any) -> Iterator[dict[str, tuple[int, ...]]]:
    """The shapes of one sample of each input of a batch that has names: first without what is called as labels are,
    then, where there is such, with it."""
    if not isinstance(batch, Mapping):
        return
    shapes = {str(name): tuple(getattr(x, "shape", ())) for name, x in batch.items()}
    sizes = {name: (1, *shape[1:]) for name, shape in shapes.items() if shape}
    inputs = {name: shape for name, shape in sizes.items() if name not in LABELS}
    yield from filter(None, (inputs, sizes) if len(inputs) < len(sizes) else (sizes,))


def _from_module(module: Any, reading: Reading) -> Graph:
    from mrt.frontend.torch import FORMAT, from_torch

    FORMAT.check_installed()
    from mrt.frontend.torch.exporting import exported

    first = reading.first_batch if reading.example_inputs is None else None
    program = exported(module, reading.example_inputs, None if first is None else first())
    return from_torch(program, shapes=reading.shapes, values=reading.values, split=reading.split)


def _from_program(program: Any, **options: Any) -> Graph:
    from mrt.frontend.torch import from_torch

    return from_torch(program, **options)


def _from_onnx(model: Any, **options: Any) -> Graph:
    from mrt.frontend.onnx import from_onnx

    return from_onnx(model, **options)


def _from_openvino(model: Any, **options: Any) -> Graph:
    from mrt.frontend.openvino import from_openvino

    return from_openvino(model, **options)


def _from_relax(module: Any, *, shapes: Shapes | None, values: Values | None, split: Iterable[str]) -> Graph:
    from mrt.frontend.relax import from_relax

    return from_relax(module, shapes=shapes, values=values, split=split)


_READERS: tuple[tuple[str, str, Callable[..., Graph]], ...] = (
    ("torch.export", "ExportedProgram", _from_program),
    ("onnx", "ModelProto", _from_onnx),
    ("openvino", "Model", _from_openvino),
    ("tvm", "IRModule", _from_relax),
)
"""By the module and the class of a loaded model, what reads it."""
