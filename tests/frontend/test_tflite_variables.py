"""Variables of TFLite files, which outlive a run: states of the graph, against a loop in NumPy and the interpreter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from mrt import from_tflite, quantize
from mrt.errors import GraphError, UnsupportedOperatorError
from mrt.symbol import Graph, NumpyRunner
from mrt.symbol.states import states_of
from tests.frontend.tflite_files import File, random

INITIAL = random(1, 2, 3, seed=5)
SAMPLES = [random(1, 1, 3, seed=seed) for seed in range(5)]


def handle(graph: File, name: str = "memory") -> int:
    result = graph.tensor((), "RESOURCE")
    graph.operator("VAR_HANDLE", [], [result], "VarHandleOptions", SharedName=name)
    return result


def beginning(file: File, value: np.ndarray | None, **fields: Any) -> File:
    """The graph that sets the variable once; of nothing where there is no value."""
    first = file.another()
    if value is not None:
        first.operator("ASSIGN_VARIABLE", [handle(first), first.constant(value, **fields)], [])
    return first


def memory(initial: np.ndarray | None = INITIAL, sets: bool = True, first: str = "") -> bytes:
    """y = the sum of the last three rows: those that a variable holds, and x. It then holds the last two.

    sets: whether it does. first: an operator by which the beginning computes what it holds.
    """
    file = File()
    x = file.input((1, 1, 3))
    file.operator("CALL_ONCE", [], [], "CallOnceOptions", InitSubgraphIndex=1)
    variable = handle(file)
    held, window, total = file.tensor((1, 2, 3)), file.tensor((1, 3, 3)), file.tensor((1, 3))
    file.operator("READ_VARIABLE", [variable], [held])
    file.operator("CONCATENATION", [held, x], [window], "ConcatenationOptions", Axis=1)
    file.operator("SUM", [window, file.constant(np.array([1], "int32"))], [total], "ReducerOptions")
    kept, again = file.tensor((1, 2, 3)), file.tensor((1, 2, 3))
    bounds = [file.constant(np.array(bound, "int32")) for bound in ([0, 1, 0], [1, 3, 3], [1, 1, 1])]
    file.operator("STRIDED_SLICE", [window, *bounds], [kept], "StridedSliceOptions")
    if sets:
        file.operator("ASSIGN_VARIABLE", [variable, kept], [])
    # What a later read gives is what was set before.
    file.operator("READ_VARIABLE", [variable], [again])
    once = beginning(file, initial)
    if first:
        result = once.tensor((1, 2, 3))
        once.operator(first, [once.constant(INITIAL)], [result])
    return file.write([total, again], others=[(once, [])])


def stream(graph: Graph, samples: Sequence[np.ndarray]) -> list[list[np.ndarray]]:
    """The outputs that no state holds, sample by sample."""
    states = states_of(graph)
    held: Mapping[str, np.ndarray] = {state.name: state.first for state in states}
    places = {state.place for state in states}
    found = []
    for sample in samples:
        outputs = graph.evaluate({"t0": sample, **held})
        held = {state.name: outputs[state.place] for state in states}
        found.append([output for place, output in enumerate(outputs) if place not in places])
    return found


def interpreted(content: bytes, samples: Sequence[np.ndarray]) -> list[list[np.ndarray]]:
    interpreter = pytest.importorskip("ai_edge_litert.interpreter")
    machine = interpreter.Interpreter(model_content=content)
    machine.allocate_tensors()
    found = []
    for sample in samples:
        machine.set_tensor(machine.get_input_details()[0]["index"], sample)
        machine.invoke()
        found.append([machine.get_tensor(told["index"]).copy() for told in machine.get_output_details()])
    return found


def test_what_a_run_sets_the_next_reads() -> None:
    rows = np.concatenate([INITIAL, *SAMPLES], axis=1)
    for step, (total, kept) in enumerate(stream(from_tflite(memory()), SAMPLES)):
        np.testing.assert_allclose(total, rows[:, step : step + 3].sum(1), rtol=1e-6)
        np.testing.assert_array_equal(kept, rows[:, step + 1 : step + 3])


def test_runs_are_those_of_the_interpreter() -> None:
    for found, expected in zip(stream(from_tflite(memory()), SAMPLES), interpreted(memory(), SAMPLES), strict=True):
        for left, right in zip(found, expected, strict=True):
            np.testing.assert_allclose(left, right, rtol=1e-6)


def test_a_state_is_called_as_the_variable() -> None:
    (state,) = states_of(from_tflite(memory()))
    assert state.name == "memory"
    np.testing.assert_array_equal(state.first, INITIAL)


def test_a_variable_that_nothing_sets_is_a_constant() -> None:
    graph = from_tflite(memory(sets=False))
    assert states_of(graph) == () and [symbol.name for symbol in graph.inputs] == ["t0"]
    np.testing.assert_allclose(graph.evaluate({"t0": SAMPLES[0]})[0], INITIAL.sum(1) + SAMPLES[0][:, 0], rtol=1e-6)


def test_a_variable_without_a_beginning_is_refused() -> None:
    with pytest.raises(GraphError, match="the variable memory is read before anything sets it"):
        from_tflite(memory(initial=None))


def test_a_beginning_that_computes_is_refused() -> None:
    with pytest.raises(UnsupportedOperatorError, match="NEG computes what variables are at first; constants"):
        from_tflite(memory(first="NEG"))


def test_the_state_of_a_quantized_network_keeps_the_integers_of_the_file() -> None:
    """The variable holds int8; the network that MRT makes keeps them at that scale and zero point."""
    scale = {"scales": [0.05], "zero_points": [-3]}
    file = File()
    x = file.input((1, 4), "int8", **scale)
    file.operator("CALL_ONCE", [], [], "CallOnceOptions", InitSubgraphIndex=1)
    variable, held, y = handle(file), file.tensor((1, 4), "int8", **scale), file.tensor((1, 4), "int8", **scale)
    file.operator("READ_VARIABLE", [variable], [held])
    file.operator("MAXIMUM", [x, held], [y])
    file.operator("ASSIGN_VARIABLE", [variable, y], [])
    once = beginning(file, np.array([[-9, 0, 5, 7]], "int8"), **scale)
    content = file.write([y], others=[(once, [])])
    samples = [np.array([row], "int8") for row in ([-20, 4, 5, -3], [-8, 3, 6, 1], [-128, -128, -128, 127])]
    following = quantize(from_tflite(content), [{"t0": sample} for sample in samples], runner=NumpyRunner()).stream()
    highest = np.array([[-9, 0, 5, 7]], "int8")
    for sample in samples:
        highest = np.maximum(highest, sample)
        expected = (highest.astype(np.float32) + 3) * np.float32(0.05)
        np.testing.assert_allclose(following({"t0": sample}), expected, rtol=1e-6)
