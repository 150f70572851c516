"""From a module to an exported program: in use, on the CPU, of one sample."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch.utils import _pytree as pytree

from mrt.errors import GraphError
from mrt.frontend.torch.program import quiet
from mrt.messages import short
from mrt.samples import LABELS

Call = tuple[tuple[Any, ...], dict[str, Any]]
"""What forward() is called with: arguments by place and by name."""
_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def exported(module: torch.nn.Module, example_inputs: Any, batch: Any) -> torch.export.ExportedProgram:
    """The program of a module, as it is in use (`eval`); the module stays as it was.

    example_inputs: a tensor, a tuple of arguments or a mapping of them by name, None where `batch`, one of a loader, is
    to say them: by the names or the places of the parameters of forward(), what is left over being labels.
    Axis 0 of every input is the batch.
    Raises GraphError saying why PyTorch cannot trace the module, and what to do.
    """
    if isinstance(module, torch.jit.ScriptModule):
        raise GraphError("a TorchScript module is given, which torch.export does not take; give the torch.nn.Module")
    device = next((p.device for p in (*module.parameters(), *module.buffers()) if p.device.type != "cpu"), None)
    if device is not None:
        raise GraphError(f"the module is on {device}; give it on the CPU: module.cpu()")
    args, kwargs = _from_batch(module, batch) if example_inputs is None else _from_example(example_inputs)
    with _in_use(module), torch.no_grad(), quiet():
        return _exported(module, args, kwargs)


def _exported(module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> torch.export.ExportedProgram:
    args, kwargs = _as_float32((args, kwargs), module)
    tensors = [leaf for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor) and leaf.ndim]
    if not tensors:
        raise GraphError("example_inputs hold no tensor with a batch axis; give those that forward() is called with")
    # The batch of the graph is changed later on, for which one sample says as much as an open size.
    args, kwargs = _one_sample((args, kwargs), tensors[0].shape[0])
    try:
        return torch.export.export(module, args, kwargs, strict=False)
    except Exception as error:  # whatever forward() and its tracing raise
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        raise GraphError(
            f"torch.export cannot trace {type(module).__name__}: {lines[0] if lines else type(error).__name__}; check "
            f"that forward() runs on example_inputs={_shown(args, kwargs)}, give others by that, or take out of "
            f"forward() what depends on values of the data"
        ) from error


def _as_float32(call: Call, module: torch.nn.Module) -> Call:
    """The call with float32 for float64, which every float becomes in the graph, unless the module computes in it."""
    if any(p.dtype == torch.float64 for p in module.parameters()):
        return call

    def single(leaf: Any) -> Any:
        return leaf.float() if isinstance(leaf, torch.Tensor) and leaf.dtype == torch.float64 else leaf

    changed: Call = pytree.tree_map(single, call)
    return changed


def _one_sample(call: Call, count: int) -> Call:
    """The call with the first of `count` samples of every tensor that has so many."""

    def cut(leaf: Any) -> Any:
        is_batched = isinstance(leaf, torch.Tensor) and leaf.ndim and leaf.shape[0] == count
        return leaf[:1].contiguous() if is_batched else leaf

    cut_call: Call = pytree.tree_map(cut, call)
    return cut_call


@contextmanager
def _in_use(module: torch.nn.Module) -> Iterator[None]:
    training = [part for part in module.modules() if part.training]
    module.eval()
    try:
        yield
    finally:
        for part in training:
            part.training = True


def _from_example(given: Any) -> Call:
    if isinstance(given, Mapping):
        return (), {name: _tensor(value, f"example_inputs: {name}") for name, value in given.items()}
    parts = tuple(given) if isinstance(given, (tuple, list)) else (given,)
    return tuple(_tensor(part, "example_inputs") for part in parts), {}


def _from_batch(module: torch.nn.Module, batch: Any) -> Call:
    """The arguments of forward() in a batch of a loader; GraphError where they are not found."""
    if batch is None:
        raise GraphError("a module is traced with examples of its inputs: give example_inputs=, or data")
    parameters = list(inspect.signature(module.forward).parameters.values())
    if isinstance(batch, (tuple, list)) and len(batch) == 2 and isinstance(batch[0], (Mapping, tuple)):
        batch = batch[0]
    if isinstance(batch, Mapping):
        return (), _by_name(batch, parameters)
    if not isinstance(batch, (tuple, list)):
        return (_tensor(batch, "the first batch"),), {}
    needed = [p for p in parameters if p.kind not in _VARIADIC and p.default is p.empty]
    count = len(batch) if len(batch) < len(needed) else max(len(needed), 1)
    if any(p.kind is inspect.Parameter.VAR_POSITIONAL for p in parameters) and len(batch) > 1:
        raise GraphError(
            f"a batch has {len(batch)} parts, and forward() takes any number: which are inputs is not known; give "
            f"example_inputs=(x, …)"
        )
    return tuple(_tensor(part, "the first batch") for part in batch[:count]), {}


def _by_name(batch: Mapping[str, Any], parameters: Sequence[inspect.Parameter]) -> dict[str, Any]:
    names = [p.name for p in parameters if p.kind not in _VARIADIC]
    takes_all = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters)
    # A model of Hugging Face takes labels too, to compute a loss.
    required = {p.name for p in parameters if p.default is p.empty}
    given = {key: value for key, value in batch.items() if key not in LABELS or key in required}
    unknown = [key for key in given if key not in names]
    if unknown and not takes_all:
        raise GraphError(
            f"a batch holds {', '.join(map(str, unknown))}, which forward() does not take; it takes "
            f"{', '.join(names)}: remove the others from the batches"
        )
    return {key: _tensor(value, f"the first batch: {key}") for key, value in given.items()}


def _tensor(value: Any, where: str) -> Any:
    """An array as a tensor, float32 instead of float64, which NumPy makes of every number; the rest as it is."""
    if isinstance(value, (torch.Tensor, str, bool, int, float)) or value is None:
        return value
    if isinstance(value, (Mapping, tuple, list)):
        return pytree.tree_map(lambda leaf: _tensor(leaf, where) if hasattr(leaf, "__array__") else leaf, value)
    try:
        array = np.asarray(value)
        return torch.from_numpy(array.astype(np.float32) if array.dtype == np.float64 else np.array(array))
    except (TypeError, ValueError) as error:
        raise GraphError(f"{where} is {short(value)}, no tensor: {error}") from None


def _shown(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str:
    def shape(value: Any) -> str:
        return f"{value.dtype}{list(value.shape)}" if isinstance(value, torch.Tensor) else short(value)

    if kwargs:
        return "{" + ", ".join(f"{name!r}: {shape(value)}" for name, value in kwargs.items()) + "}"
    return f"({', '.join(map(shape, args))})"
