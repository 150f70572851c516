"""What `mrt inspect` tells of a model: every symbol, whole, and the reasons for one."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from io import StringIO

import numpy as np
import pytest
from rich.console import Console

from mrt.calibration import Range
from mrt.errors import MRTError
from mrt.model import QuantizedModel, assemble
from mrt.quantization.expand import expand_graph
from mrt.quantization.options import QuantizationConfig
from mrt.report.errors import ErrorFact, ErrorTable
from mrt.report.inspect import COLUMNS, explain, inspect_rows, overview, plain_table, rich_table
from mrt.symbol import GraphBuilder, TensorType
from mrt.symbol.operators.activation import Relu
from mrt.symbol.operators.convolution import Convolution

LONG = "a_name[that]/is:much_longer_than_any_column_of_a_narrow_terminal_could_ever_be"


def make_model(last: str = "out", notes: tuple[str, ...] = ()) -> QuantizedModel:
    """One convolution and relu on an input with a zero point."""
    builder = GraphBuilder()
    x = builder.input("x", TensorType((1, 2, 4, 4)))
    weight = builder.parameter("w", np.array([1, -0.5, 0.25, 1], np.float32).reshape(2, 2, 1, 1))
    conv = builder.apply(Convolution(kernel=(1, 1), num_filter=2, no_bias=True), [x, weight], "conv")
    graph = builder.graph([builder.apply(Relu(), [conv], last)])
    ranges = {"x": Range(-1.0, 3.0), "conv": Range(-2.0, 2.0), last: Range(0.0, 2.0)}
    config = QuantizationConfig.model_validate({"activation": {"quantizer": "affine"}})
    return replace(assemble(expand_graph(graph, ranges, config), None, ranges), notes=notes)


MODEL = make_model()
ERRORS = ErrorTable("", 7, {"x": ErrorFact("x", 50.25, 0.5), "out": ErrorFact("out", None, 0.0)})


def test_every_symbol_has_a_row_with_what_is_proven_of_it() -> None:
    rows = {row.name: row for row in inspect_rows(MODEL, ERRORS)}
    assert list(rows) == [symbol.name for symbol in MODEL.graph.symbols]
    for name, row in rows.items():
        fact, symbol = MODEL.certificate.tensors[name], MODEL.graph.by_name[name]
        assert (row.lo, row.hi, row.bits, row.shape, row.dtype) == (
            fact.lo,
            fact.hi,
            fact.bits,
            symbol.shape,
            symbol.dtype,
        )
        assert (row.scale is None) == (row.zero_point is None) == (name not in MODEL.scales)
    assert rows["x"].cells == (
        "x", "input", "[1, 2, 4, 4]", "uint8", "9", "[0, 255]", "0.0156863", "64", "50.2 dB", "0.5 steps",
    )  # fmt: skip
    assert rows["w"].cells == ("w", "parameter", "[2, 2, 1, 1]", "int8", "8", "[-63, 127]", "-", "-", "-", "-")
    assert rows["conv"].operator == "Convolution"
    assert rows["out"].cells[-2:] == ("-", "0 steps")


def test_the_plain_table_is_aligned_and_whole() -> None:
    rows = inspect_rows(MODEL, ERRORS)
    header, *lines = plain_table(rows).splitlines()
    assert [header.index(column) for column in COLUMNS] == sorted(header.index(column) for column in COLUMNS)
    start = header.index("operator")
    for row, line in zip(rows, lines, strict=True):
        assert line[start:].startswith(row.operator)
        assert [cell for cell in row.cells if cell not in line] == []


@pytest.mark.parametrize("width", [40, 80, 100, 300])
def test_the_terminal_table_cuts_nothing(width: int) -> None:
    rows = inspect_rows(make_model(LONG), ERRORS)
    written = StringIO()
    Console(file=written, width=width).print(rich_table(rows, width))
    # Folded cells are spread over lines, so characters are counted.
    found = Counter("".join(written.getvalue().replace("─", "").split()))
    assert found == Counter("".join("".join(COLUMNS + tuple(cell for row in rows for cell in row.cells)).split()))
    assert max(map(len, written.getvalue().splitlines())) <= width


def test_a_narrow_terminal_shows_two_columns_in_a_cell() -> None:
    assert len(rich_table(inspect_rows(MODEL), 300).columns) == len(COLUMNS)
    assert len(rich_table(inspect_rows(MODEL), 80).columns) == len(COLUMNS) // 2


def test_the_overview_holds_the_notes() -> None:
    text = overview(make_model(notes=("conv: weights of 5 bits instead of 8",)))
    assert "note: conv: weights of 5 bits instead of 8" in text
    assert "errors against float: not measured" in text
    assert "over 7 samples" in overview(MODEL, ERRORS)
    assert f"at most {MODEL.certificate.max_bits} bits" in text


def test_one_symbol_is_explained_by_its_operator_and_inputs() -> None:
    text = explain(MODEL, "x", ERRORS)
    assert text.startswith("x: input, uint8[1, 2, 4, 4]")
    for part in (
        "bounds      [0, 255], 9 bits, by input range",
        "range       [-1, 3], calibrated for x",
        "real value  0.0156863 * (q - 64), in [-1.00392, 2.99608]",
        "error       SQNR 50.25 dB, at most 0.5 steps, over 7 samples against float x",
        "read by     conv",
    ):
        assert part in text
    assert "error" not in explain(MODEL, "x")


def test_a_float_symbol_tells_of_all_that_was_made_from_it() -> None:
    told = [part.split(":")[0] for part in explain(MODEL, "conv", ERRORS).split("\n\n")]
    assert told == [symbol.name for symbol in MODEL.graph.symbols if symbol.origin == "conv"]
    assert {"w", "conv", "conv_centred"} <= set(told)
    conv = next(part for part in explain(MODEL, "conv").split("\n\n") if part.startswith("conv: "))
    assert "Convolution, int32[1, 2, 4, 4]" in conv
    assert "attributes  kernel = (1, 1), num_filter = 2, no_bias = True" in conv
    assert "by bounds of Convolution" in conv and "on the way" in conv
    assert "input       x: input, uint8[1, 2, 4, 4], [0, 255], 9 bits" in conv
    assert "input       w: parameter, int8[2, 2, 1, 1], [-63, 127], 8 bits" in conv
    assert "by element" in conv, "the bounds of the two output channels differ"


def test_an_integer_symbol_with_another_origin_is_told_of_alone() -> None:
    text = explain(MODEL, "conv_centred", ERRORS)
    assert text.startswith("conv_centred: broadcast_add, int32[1, 2, 4, 4], made from conv")
    assert "\n\n" not in text
    assert "no error, at most 0 steps" in explain(MODEL, "out", ERRORS)
    assert "an output of the model" in explain(MODEL, "out", ERRORS)


def test_a_float_symbol_that_vanished_is_known_by_its_range() -> None:
    model = replace(MODEL, ranges={**MODEL.ranges, "gone": Range(0.0, 6.0)})
    text = explain(model, "gone")
    assert text.startswith("gone: needs no integer symbol of its own")
    assert "range       [0, 6], calibrated for gone" in text


@pytest.mark.parametrize(("name", "near"), [("convv", "conv"), ("outt", "out"), ("CENTRED", "conv_centred")])
def test_an_unknown_name_is_answered_with_the_nearest(name: str, near: str) -> None:
    with pytest.raises(MRTError, match=rf"no symbol of the model is called {name}.*the nearest are .*{near}"):
        explain(MODEL, name)


def test_a_name_like_no_other() -> None:
    with pytest.raises(MRTError, match="without --symbol all are listed"):
        explain(MODEL, "zzzzzzzzzzzzzzz")


def test_names_cannot_forge_lines() -> None:
    model = make_model("two\nlines")
    assert len(plain_table(inspect_rows(model)).splitlines()) == 1 + len(model.graph.symbols)
    assert '"two\\nlines"' in explain(model, "two\nlines")
