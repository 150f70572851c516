"""The file of errors: read back as written, taken only for the model that it was measured on."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest

from mrt.certificate import CERTIFICATE_FILE
from mrt.errors import ModelFileError
from mrt.evaluation import Counterpart, Noise, TensorError
from mrt.report.errors import ERRORS_FILE, ErrorFact, ErrorTable, read_errors

TABLE = ErrorTable(
    sha256(b"proof").hexdigest(), 3, {"a_int8": ErrorFact("a", 30.5, 1.25), "b": ErrorFact("b", None, 0.0)}
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / CERTIFICATE_FILE).write_bytes(b"proof")
    (tmp_path / ERRORS_FILE).write_text(json.dumps(TABLE.to_json()))
    return tmp_path


def test_what_is_written_is_read_back(folder: Path) -> None:
    assert read_errors(folder) == TABLE
    assert TABLE.of_origin("a") == ("a_int8", ErrorFact("a", 30.5, 1.25))
    assert TABLE.of_origin("c") is None


def test_errors_of_another_model_are_not_taken(folder: Path) -> None:
    (folder / CERTIFICATE_FILE).write_bytes(b"another proof")
    assert read_errors(folder) is None


def test_a_model_that_was_not_evaluated_has_none(folder: Path) -> None:
    (folder / ERRORS_FILE).unlink()
    assert read_errors(folder) is None


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "null", '{"format_version": 9}', '{"format_version": 1, "samples": 2}']
)
def test_a_malformed_file_is_named(folder: Path, text: str) -> None:
    (folder / ERRORS_FILE).write_text(text)
    with pytest.raises(ModelFileError, match=ERRORS_FILE):
        read_errors(folder)


def test_a_table_is_made_of_what_was_measured() -> None:
    forms = tuple(Counterpart(name, name[0], np.ones(1), 0) for name in ("a_int8", "b_int8", "c_int8"))
    errors = {"a_int8": TensorError(Noise(100.0, 1.0), 0.5), "b_int8": TensorError(Noise(0.0, np.inf), np.inf)}
    table = ErrorTable.of("digest", 2, forms, errors)
    assert table.tensors == {"a_int8": ErrorFact("a", 20.0, 0.5), "b_int8": ErrorFact("b", None, None)}
    json.dumps(table.to_json(), allow_nan=False)
