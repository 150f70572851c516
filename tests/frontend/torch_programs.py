"""Exported programs for tests, and what PyTorch itself computes with them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from mrt.frontend.torch import from_torch
from mrt.symbol import Graph

torch = pytest.importorskip("torch")

TOLERANCE = 1e-5


class Function(torch.nn.Module):  # type: ignore[misc]
    """A function as a module; tensors that it reads beside its arguments become constants of the program."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: Any) -> Any:
        return self.function(*args)


class Each(torch.nn.Module):  # type: ignore[misc]
    """Many functions and modules of the same inputs, which are exported, and read, in one go."""

    def __init__(self, parts: Mapping[str, Callable[..., Any]]) -> None:
        super().__init__()
        self.parts = torch.nn.ModuleList(module_of(part) for part in parts.values())

    def forward(self, *args: Any) -> Any:
        return [part(*args) for part in self.parts]


class Apart(Each):
    """Many modules, each of an input of its own."""

    def forward(self, *args: Any) -> Any:
        return [part(arg) for part, arg in zip(self.parts, args, strict=True)]


def random(*shape: int, seed: int = 0) -> Any:
    """Numbers in (-3, 3)."""
    values = np.random.default_rng(seed).uniform(-3, 3, shape).astype("float32")
    return torch.from_numpy(values)


def randomized(module: Any) -> Any:
    """The module with parameters and statistics that are no ones and zeros."""
    for place, tensor in enumerate(module.state_dict().values()):
        if tensor.is_floating_point():
            tensor.copy_(random(*tensor.shape, seed=place).abs() / 3 + 0.1)
    return module


def module_of(model: Any) -> Any:
    """A module, or a function made one, as it is in use."""
    return (model if isinstance(model, torch.nn.Module) else Function(model)).eval()


def export(model: Any, *inputs: Any, **options: Any) -> Any:
    return torch.export.export(module_of(model), inputs, **options)


def outputs_of(model: Any, *inputs: Any) -> list[np.ndarray]:
    """What PyTorch gives."""
    with torch.no_grad():
        result = module_of(model)(*inputs)
    return [item.numpy() for item in torch.utils._pytree.tree_leaves(result) if isinstance(item, torch.Tensor)]


def check(model: Any, *inputs: Any) -> Graph:
    """Asserts that the graph read from a program gives what PyTorch gives; gives the graph."""
    graph = from_torch(export(model, *inputs))
    compare(graph, model, *inputs)
    return graph


def check_each(parts: Mapping[str, Callable[..., Any]], *inputs: Any) -> None:
    """Asserts that functions of the same inputs, read in one go, give what PyTorch gives."""
    graph = from_torch(export(Each(parts), *inputs))
    found = iter(evaluated(graph, *inputs))
    for name, part in parts.items():
        for theirs in outputs_of(part, *inputs):
            _assert_close(next(found), theirs, name)
    assert next(found, None) is None


def check_apart(parts: Mapping[str, tuple[Callable[..., Any], Any]]) -> Graph:
    """Asserts that functions of an input each, read in one go, give what PyTorch gives; gives the graph."""
    inputs = [given for _, given in parts.values()]
    graph = from_torch(export(Apart({name: part for name, (part, _) in parts.items()}), *inputs))
    found = iter(evaluated(graph, *inputs))
    for name, (part, given) in parts.items():
        for theirs in outputs_of(part, given):
            _assert_close(next(found), theirs, name)
    assert next(found, None) is None
    return graph


def compare(graph: Graph, model: Any, *inputs: Any) -> None:
    found, expected = evaluated(graph, *inputs), outputs_of(model, *inputs)
    assert len(found) == len(expected)
    for ours, theirs in zip(found, expected, strict=True):
        _assert_close(ours, theirs, "")


def evaluated(graph: Graph, *inputs: Any) -> list[np.ndarray]:
    names = [symbol.name for symbol in graph.inputs]
    return graph.evaluate(dict(zip(names, (item.numpy() for item in inputs), strict=True)))


def _assert_close(ours: np.ndarray, theirs: np.ndarray, name: str) -> None:
    assert ours.shape == theirs.shape, name
    np.testing.assert_allclose(ours, theirs.astype(np.float64), rtol=TOLERANCE, atol=TOLERANCE, err_msg=name)


def operators(graph: Graph) -> list[str]:
    return [symbol.op for symbol in graph.operators]
