"""What the signature of a TFLite file calls its outputs."""

from __future__ import annotations

import numpy as np
import pytest

tflite = pytest.importorskip("tflite")

import mrt  # noqa: E402
from tests.frontend.tflite_files import File  # noqa: E402


def two_outputs(signature: dict[str, int] | None) -> bytes:
    file = File()
    x = file.input([1, 4])
    for kind in ("RELU", "TANH"):
        file.operator(kind, [x], [file.tensor([1, 4])])
    return file.write([2, 1], signature=signature)


def test_outputs_are_called_as_the_signature_has_them() -> None:
    graph = mrt.from_tflite(two_outputs({"scores": 1, "boxes": 2}))
    assert graph.titles == ("boxes", "scores") and [symbol.name for symbol in graph.outputs] == ["t2", "t1"]
    x = np.linspace(-1, 1, 4, dtype=np.float32)[None]
    boxes, scores = graph.evaluate({"t0": x})
    np.testing.assert_allclose(boxes, np.tanh(x), rtol=1e-6)
    np.testing.assert_array_equal(scores, np.maximum(x, 0))


def test_names_that_are_no_text_on_one_line_and_other_tensors_are_left_out() -> None:
    assert mrt.from_tflite(two_outputs({"a\nb": 1, "boxes": 2, "": 0})).titles == ("boxes", "t1")
    assert mrt.from_tflite(two_outputs({"boxes": 99})).titles == ("t2", "t1")
    assert mrt.from_tflite(two_outputs(None)).titles == ("t2", "t1")


def test_an_output_that_is_left_over_by_a_split_keeps_its_name() -> None:
    assert mrt.from_tflite(two_outputs({"scores": 1, "boxes": 2}), split=["t2"]).titles
