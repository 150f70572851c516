"""The list of formats that `mrt export` writes."""

from __future__ import annotations

from pathlib import Path

from mrt import export
from mrt.export.formats import EXPORT_FORMATS
from mrt.model import QuantizedModel


def test_each_folder_is_a_format_that_a_model_writes() -> None:
    names = [format.name for format in EXPORT_FORMATS]
    folders = {path.parent.name for path in Path(str(export.__file__)).parent.glob("*/__init__.py")}
    assert len(names) == len(set(names)) and set(names) == folders
    assert [name for name in names if not callable(getattr(QuantizedModel, f"to_{name}", None))] == []
