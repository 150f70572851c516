"""Relax modules for tests, and what TVM itself computes with them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tvm
from tvm import relax

from mrt.frontend.relax import from_relax
from mrt.symbol import Graph

Shape = Sequence[Any]


def build(body: Callable[..., Any], **inputs: Shape | tuple[Shape, str]) -> tvm.IRModule:
    """A module whose `main` takes tensors of these shapes (float32 unless a dtype is beside) and gives `body` of them.

    `body` may give one expression or a list of them.
    """
    variables = [relax.Var(name, _type(given)) for name, given in inputs.items()]
    builder = relax.BlockBuilder()
    with builder.function("main", variables):
        with builder.dataflow():
            result = body(*variables)
            if isinstance(result, (list, tuple)):
                result = relax.Tuple([builder.normalize(item) for item in result])
            output = builder.emit_output(result)
        builder.emit_func_output(output)
    return builder.get()


def _type(given: Any) -> Any:
    if len(given) == 2 and isinstance(given[1], str):
        return relax.TensorType(tuple(given[0]), given[1])
    return relax.TensorType(tuple(given), "float32")


def constant(array: Any, dtype: str = "float32") -> Any:
    return relax.const(np.asarray(array, dtype=dtype), dtype)


def random(*shape: int, seed: int = 0) -> np.ndarray:
    """Numbers in (-2, 2)."""
    return np.random.default_rng(seed).uniform(-2, 2, shape).astype("float32")


def run(mod: tvm.IRModule, feeds: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    """What TVM gives: the module through the pipeline "zero", compiled for LLVM, run."""
    lowered = relax.get_pipeline("zero")(mod)
    executable = tvm.compile(lowered, target=tvm.target.Target({"kind": "llvm"}))
    machine = relax.VirtualMachine(executable, tvm.cpu())
    result = machine["main"](*(tvm.runtime.tensor(value) for value in feeds.values()))
    return [item.numpy() for item in _flat(result)]


def _flat(result: Any) -> list[Any]:
    return [result] if isinstance(result, tvm.runtime.Tensor) else [leaf for item in result for leaf in _flat(item)]


def check(body: Any, feeds: dict[str, np.ndarray] | None = None, **inputs: Any) -> Graph:
    """Asserts that the graph read from a module gives what TVM gives; gives the graph."""
    mod = build(body, **inputs)
    if feeds is None:
        feeds = {name: random(*shape, seed=place) for place, (name, shape) in enumerate(inputs.items())}
    expected = run(mod, feeds)
    graph = from_relax(mod)
    found = graph.evaluate(feeds)
    assert len(found) == len(expected)
    for ours, theirs in zip(found, expected, strict=True):
        assert (ours.shape, ours.dtype) == (theirs.shape, theirs.dtype)
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)
    return graph


def operators(graph: Graph) -> list[str]:
    return [symbol.op for symbol in graph.operators]
