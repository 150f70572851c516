"""The PyTorch reader: an exported program, or the .pt2 file of one, through TVM's importer and the Relax reader."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

from mrt.errors import GraphError, ModelFileError
from mrt.frontend.shared.format import Format
from mrt.frontend.shared.inputs import ReadOptions, Shapes, Values, read_options
from mrt.frontend.torch.archive import read_archive
from mrt.paths import as_path
from mrt.symbol import Graph

__all__ = ["FORMAT", "from_torch"]

_ZIP = (b"PK\x03\x04", b"PK\x05\x06")
"""What a zip archive begins with, the second where it is empty."""


def from_torch(
    program: str | os.PathLike[str] | Any,
    batch: int = 1,
    shapes: Shapes | None = None,
    values: Values | None = None,
    split: Iterable[str] = (),
) -> Graph:
    """The float graph of a torch.export.ExportedProgram, or of the .pt2 file that torch.export.save wrote of one.

    batch, shapes, values, split: as `load_model` takes them; the program is traced again for the sizes. Every float
    becomes float32. Symbols are called as the
    nodes of the program are, parameters as its placeholders. Inputs and outputs that are no tensors are left out.

    Raises ModelFileError where the file is no whole archive or holds what is never loaded, or torch is not installed;
    UnsupportedOperatorError listing every operator that is not covered, or every use of a covered one that is not;
    GraphError where it is no program, another dimension is dynamic, or it is of a model in training.
    """
    return _read(program, read_options(batch, shapes, values, split))


def _read(program: str | os.PathLike[str] | Any, options: ReadOptions) -> Graph:
    archive = None
    if isinstance(program, (str, os.PathLike)):
        path = as_path(program, "program", to_read=True)
        if path.is_dir():
            raise ModelFileError(f"{path} is a folder; a .pt2 file is needed")
        if not path.exists():
            raise ModelFileError(f"{path} does not exist; give the path of a .pt2 file")
        # Before torch is loaded, which takes longer than telling that a file is none.
        archive = read_archive(path)
    FORMAT.check_installed()
    import torch

    import mrt.lean_tvm  # noqa: F401 - before what imports TVM
    from mrt.frontend.torch.program import load_program
    from mrt.frontend.torch.reader import read_program

    if archive is not None:
        program = load_program(archive, str(program))
    if not isinstance(program, torch.export.ExportedProgram):
        raise GraphError(
            f"a {type(program).__name__} is given; an exported program is needed: "
            "torch.export.export(model.eval(), example_inputs), or the path of a .pt2 file"
        )
    return read_program(program, options)


FORMAT = Format(
    name="torch",
    extra="torch",
    looks_like=lambda start: start.startswith(_ZIP),
    read=_read,
    file="PyTorch's .pt2",
    suffix=".pt2",
    takes_shapes=True,
    takes_values=True,
)
