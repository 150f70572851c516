"""IF of TFLite files: the condition chooses between what two graphs give."""

from __future__ import annotations

import numpy as np
import pytest

from mrt import from_tflite
from mrt.errors import ModelFileError
from tests.frontend.tflite_files import File, interpreted, random


def branching(recursive: bool = False, inputs: int = 2) -> bytes:
    """sum(x) >= 0 ? 2 x + c : c, by two graphs that take x and c."""
    file = File()
    x, c = file.input((1, 4)), file.constant(random(4, seed=1))
    total, zero, holds, condition = file.tensor((1,)), file.constant(np.float32(0)), file.tensor((1,), "bool"), None
    file.operator("SUM", [x, file.constant(np.array([1], "int32"))], [total], "ReducerOptions", KeepDims=False)
    file.operator("GREATER_EQUAL", [total, zero], [holds], "GreaterEqualOptions")
    condition = file.tensor((), "bool")
    file.operator("RESHAPE", [holds, file.constant(np.array([], "int32"))], [condition])
    result = file.tensor((1, 4))
    file.operator("IF", [condition, x, c], [result], "IfOptions", ThenSubgraphIndex=1, ElseSubgraphIndex=2)

    double = file.another()
    given = [double.input(shape) for shape in ((1, 4), (4,))[:inputs]]
    twice, moved = double.tensor((1, 4)), double.tensor((1, 4))
    double.operator("ADD", [given[0], given[0]], [twice], "AddOptions")
    if recursive:
        truth = double.constant(np.array(True))
        double.operator("IF", [truth, *given], [moved], "IfOptions", ThenSubgraphIndex=1, ElseSubgraphIndex=2)
    else:
        double.operator("ADD", [twice, given[-1]], [moved], "AddOptions")

    other = file.another()
    x, c = other.input((1, 4)), other.input((4,))
    kept = other.tensor((1, 4))
    other.operator("RESHAPE", [c, other.constant(np.array([1, 4], "int32"))], [kept])
    return file.write([result], others=[(double, [moved]), (other, [kept])])


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_the_condition_chooses(sign: float) -> None:
    x = np.abs(random(1, 4)) * np.float32(sign)
    (found,) = from_tflite(branching()).evaluate({"t0": x})
    constant = random(4, seed=1)
    np.testing.assert_allclose(found, 2 * x + constant if sign > 0 else constant[None], rtol=1e-6)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_branches_are_those_of_the_interpreter(sign: float) -> None:
    x = np.abs(random(1, 4)) * np.float32(sign)
    (expected,) = interpreted(branching(), [x])
    np.testing.assert_allclose(from_tflite(branching()).evaluate({"t0": x})[0], expected, rtol=1e-6)


def test_a_graph_that_runs_itself_is_refused() -> None:
    with pytest.raises(ModelFileError, match="runs graph 1 within itself"):
        from_tflite(branching(recursive=True))


def test_a_graph_of_other_inputs_is_refused() -> None:
    with pytest.raises(ModelFileError, match=r"has 2 inputs and 1 outputs; graph 1, which it runs, 1 and 1"):
        from_tflite(branching(inputs=1))
