"""Every TFLite operator that is read, against NumPy, and NumPy against TensorFlow's interpreter where it is there."""

from __future__ import annotations

import numpy as np
import pytest
import tflite_arrangement_cases
import tflite_elementwise_cases
import tflite_resizing_cases
import tflite_window_cases
from tflite_files import File, interpreted

from mrt.errors import UnsupportedOperatorError
from mrt.frontend.tflite import converters, from_tflite
from mrt.frontend.tflite.node import covered_operators

CASES = (
    tflite_window_cases.CASES
    | tflite_elementwise_cases.CASES
    | tflite_arrangement_cases.CASES
    | tflite_resizing_cases.CASES
)
TESTED_ELSEWHERE = {
    *("DENSIFY", "DEQUANTIZE", "QUANTIZE", "FILL", "RANGE", "RANK", "REDUCE_PROD", "SHAPE", "ZEROS_LIKE"),
    *("BITWISE_XOR", "BROADCAST_ARGS", "FLOOR_DIV", "FLOOR_MOD", "RIGHT_SHIFT", "SCATTER_ND", "WHERE"),
    *("LOGICAL_AND", "LOGICAL_NOT", "LOGICAL_OR", "REDUCE_ALL", "REDUCE_ANY"),
    *("UNIDIRECTIONAL_SEQUENCE_LSTM", "BIDIRECTIONAL_SEQUENCE_LSTM"),
    *("UNIDIRECTIONAL_SEQUENCE_RNN", "BIDIRECTIONAL_SEQUENCE_RNN"),
}
"""By files of constants, in test_tflite_models.py, of sparse ones, in test_tflite_sparsity.py, of integers, in
test_tflite_quantized.py, and recurrent layers, in test_tflite_recurrent.py."""


def test_every_operator_has_a_case() -> None:
    assert converters.__doc__  # imported, so that all are registered
    assert {case.kind for case in CASES.values()} | TESTED_ELSEWHERE == covered_operators()


@pytest.mark.parametrize("name", CASES)
def test_operator(name: str) -> None:
    case = CASES[name]
    graph = from_tflite(case.content())
    feeds = {symbol.name: value for symbol, value in zip(graph.inputs, case.feeds, strict=True)}
    for found, expected in zip(graph.evaluate(feeds), case.results, strict=True):
        assert found.shape == expected.shape
        np.testing.assert_allclose(found, expected, rtol=case.tolerance, atol=case.tolerance)


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.has_kernel])
def test_what_is_expected_is_what_tensorflow_gives(name: str) -> None:
    case = CASES[name]
    for found, expected in zip(interpreted(case.content(), case.feeds), case.results, strict=True):
        np.testing.assert_allclose(found, expected, rtol=case.tolerance, atol=case.tolerance)


def test_places_that_tflite_does_not_define_are_refused() -> None:
    file = File()
    data, result = file.input((1, 2, 2, 1)), file.tensor((1, 4, 4, 1))
    both = {"AlignCorners": True, "HalfPixelCenters": True}
    file.operator("RESIZE_BILINEAR", [data, file.constant(np.int32([4, 4]))], [result], "ResizeBilinearOptions", **both)
    with pytest.raises(UnsupportedOperatorError, match="AlignCorners is set beside HalfPixelCenters; one of them"):
        from_tflite(file.write([result]))


def test_logic_of_comparisons() -> None:
    """Truth values that depend on the data are 1 and 0; the interpreter gives booleans."""
    file = File()
    data = [file.input((2, 3)), file.input((2, 3))]
    less, equal, either, result = (file.tensor((2, 3), "bool") for _ in range(4))
    file.operator("LESS", data, [less])
    file.operator("EQUAL", data, [equal])
    file.operator("LOGICAL_OR", [less, equal], [either])
    file.operator("LOGICAL_NOT", [either], [result])
    graph = from_tflite(file.write([result]))
    x, y = np.float32([[1, 2, 3], [4, 5, 6]]), np.float32([[1, 3, 2], [5, 5, 5]])
    (found,) = graph.evaluate(dict(zip((symbol.name for symbol in graph.inputs), (x, y), strict=True)))
    np.testing.assert_array_equal(found, (x > y).astype(np.float32))
