"""Small OpenVINO models for tests, and OpenVINO itself in float32 as the oracle of what they mean."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import openvino
from openvino import opset13 as ops

from mrt.frontend.openvino import from_openvino
from mrt.symbol import Graph

RNG = np.random.default_rng(5)
IN_FLOAT32 = {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": 1}


def normal(*shape: int) -> np.ndarray:
    return RNG.normal(0, 1, shape).astype(np.float32)


def ints(*values: int) -> Any:
    return ops.constant(np.array(values, np.int64))


@dataclass(frozen=True, eq=False)
class Case:
    """What is made of parameters of some shapes, and what they are fed."""

    build: Callable[..., Any]
    shapes: Sequence[Sequence[int]]
    draw: Callable[..., np.ndarray] = normal
    tolerance: float = 1e-5

    def model(self) -> openvino.Model:
        """The parameters are called x0, x1, …; of an operator with several outputs all are results."""
        parameters, outputs = self._made()
        return openvino.Model([ops.result(output) for output in outputs], parameters, "test")

    def _made(self) -> tuple[list[Any], list[Any]]:
        parameters = [ops.parameter([*shape], np.float32, name=f"x{i}") for i, shape in enumerate(self.shapes)]
        made = self.build(*parameters)
        return parameters, list(made) if isinstance(made, list) else list(made.outputs())

    def check(self, feeds: Sequence[np.ndarray], expected: Sequence[np.ndarray]) -> Graph:
        """The graph that is read, which gives what is expected."""
        graph = from_openvino(self.model())
        found = graph.evaluate({symbol.name: value for symbol, value in zip(graph.inputs, feeds, strict=True)})
        assert len(found) == len(expected)
        for got, wanted in zip(found, expected, strict=True):
            assert got.shape == wanted.shape
            np.testing.assert_allclose(got, wanted.astype(got.dtype), rtol=self.tolerance, atol=self.tolerance)
        return graph


def run_openvino(model: openvino.Model, feeds: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The outputs by OpenVINO, no float below 32 bits."""
    compiled = openvino.Core().compile_model(model, "CPU", IN_FLOAT32)
    found = compiled(list(feeds))
    return [np.array(found[output]) for output in compiled.outputs]


def answers(cases: Sequence[Case]) -> list[tuple[list[np.ndarray], list[np.ndarray]]]:
    """What each case is fed and gives, by OpenVINO, which compiles all of them as one model at once."""
    parameters: list[Any] = []
    results: list[Any] = []
    fed: list[list[np.ndarray]] = []
    counts: list[int] = []
    for case in cases:
        own, outputs = case._made()
        parameters += own
        results += map(ops.result, outputs)
        fed.append([case.draw(*shape) for shape in case.shapes])
        counts.append(len(outputs))
    found = run_openvino(openvino.Model(results, parameters, "all"), [value for feeds in fed for value in feeds])
    ends = np.cumsum(counts).tolist()
    return [(feeds, found[end - count : end]) for feeds, end, count in zip(fed, ends, counts, strict=True)]


def check_all(cases: Sequence[Case]) -> list[Graph]:
    """Every case gives what OpenVINO says."""
    return [case.check(*answer) for case, answer in zip(cases, answers(cases), strict=True)]
