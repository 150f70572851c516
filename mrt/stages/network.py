"""The float network that a configuration names: a model file, or what a function of a Python file gives."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from mrt.config import ModelSection
from mrt.datasets.dataset import reason
from mrt.datasets.functions import imported_function
from mrt.errors import GraphError, MRTError
from mrt.frontend import batch_first, from_onnx, load_model
from mrt.symbol import Graph
from mrt.symbol.states import with_states

KEY = "model.path"


def read_network(section: ModelSection, split: Iterable[str] = ()) -> Graph:
    """The float graph of the section `model`. split: as `load_model` takes it.

    A function is called without arguments and gives a torch.nn.Module with its example inputs, as a tuple of the two;
    a module alone, of whose inputs `shapes` says the shapes; a torch.export.ExportedProgram; an mrt.Graph; an
    onnx.ModelProto; or the path of a model file. Raises GraphError where it gives anything else, DataError where it
    raises, and what `load_model` and `from_torch` raise.
    """
    file, colon, function = str(section.path).rpartition(":")
    if not colon or section.path.exists() or not file.endswith(".py"):
        if section.path.suffix == ".py":
            raise GraphError(f"{section.path} is a Python file; name its function: {section.path.name}:FUNCTION")
        return _read_file(section.path, section, split)
    name = f"{KEY} ({file}:{function})"
    call = imported_function(Path(file), function, KEY)
    try:
        given = call()
    except MRTError:
        raise
    except (Exception, SystemExit) as error:
        raise GraphError(f"{name}: the function raised {reason(error)}") from error
    if isinstance(given, (str, os.PathLike)):
        return _read_file(Path(file).parent / given, section, split)
    graph = _graph_of(given, section, tuple(split), name)
    turned = batch_first(graph, section.batch_axes) if section.batch_axes else graph
    return replace(with_states(turned, section.states, section.initial), notes=graph.notes)


def _read_file(path: Path, section: ModelSection, split: Iterable[str]) -> Graph:
    return load_model(
        path,
        shapes=section.shapes,
        values=section.values,
        states=section.states,
        initial=section.initial,
        split=split,
        batch_axes=section.batch_axes,
        random_params=section.random_params,
    )


def _graph_of(given: Any, section: ModelSection, split: tuple[str, ...], name: str) -> Graph:
    if isinstance(given, Graph):
        if section.shapes or section.values or split:
            raise GraphError(f"{name} gives a Graph, which takes no shapes, values or split any more; give them there")
        return given
    kinds = {f"{kind.__module__.partition('.')[0]}.{kind.__name__}" for kind in type(given).__mro__}
    reader: Callable[..., Graph]
    if "onnx.ModelProto" in kinds:
        reader = from_onnx
    elif isinstance(given, tuple) or kinds & {"torch.Module", "torch.ExportedProgram"}:
        from mrt.frontend.torch import from_torch

        reader, given = from_torch, _exported(given, section.shapes, name)
    else:
        raise GraphError(
            f"{name} gives a {type(given).__name__}; a torch.nn.Module with its example inputs, (module, inputs), a "
            f"torch.export.ExportedProgram, an mrt.Graph, an onnx.ModelProto or the path of a model file is needed"
        )
    return reader(given, shapes=section.shapes, values=section.values, split=split)


def _exported(given: Any, shapes: Mapping[str, tuple[int, ...]], name: str) -> Any:
    """The program of a module with its example inputs, or without them where their shapes are known."""
    import torch

    module, inputs = given if isinstance(given, tuple) and len(given) == 2 else (given, None)
    if isinstance(module, torch.export.ExportedProgram):
        return module
    if not isinstance(module, torch.nn.Module):
        raise GraphError(f"{name} gives a tuple of {type(given[0]).__name__}; (module, example inputs) is needed")
    keywords: dict[str, Any] = {}
    if inputs is None:
        if not shapes:
            raise GraphError(
                f"{name} gives a module alone; its example inputs are needed: return (module, inputs), or give the "
                f"shapes of inputs of float32, such as --shape x=1,3,224,224"
            )
        inputs, keywords = (), {key: torch.zeros(shape) for key, shape in shapes.items()}
    elif isinstance(inputs, Mapping):
        inputs, keywords = (), dict(inputs)
    elif not isinstance(inputs, (tuple, list)):
        inputs = (inputs,)
    try:
        return torch.export.export(module.eval(), tuple(inputs), keywords)
    except Exception as error:  # whatever the module's own code raises
        raise GraphError(f"{name}: torch.export.export cannot export the module: {reason(error)}") from error
