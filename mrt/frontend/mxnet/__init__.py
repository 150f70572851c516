"""The MXNet reader: symbol JSON and parameters of every version into a Graph, without MXNet."""

from pathlib import Path

from mrt.errors import ModelFileError
from mrt.frontend.mxnet.params import PARAMS_MAGIC
from mrt.frontend.mxnet.symbols import from_mxnet, read_checkpoint
from mrt.frontend.shared.format import BYTE_ORDER_MARK, Format
from mrt.frontend.shared.inputs import ReadOptions
from mrt.symbol import Graph

__all__ = ["FORMAT", "from_mxnet", "read_checkpoint"]


def _looks_like(start: bytes) -> bool:
    """Whether a file is a JSON, or else the parameters, which are given by mistake."""
    return start.removeprefix(BYTE_ORDER_MARK).lstrip().startswith(b"{") or start.startswith(PARAMS_MAGIC)


def _read(path: Path, options: ReadOptions) -> Graph:
    with path.open("rb") as file:
        if file.read(len(PARAMS_MAGIC)) == PARAMS_MAGIC:
            raise ModelFileError(
                f"{path} holds the parameters of an MXNet model; give its NAME-symbol.json beside them"
            )
    return read_checkpoint(path, options)


FORMAT = Format(
    name="mxnet",
    extra=None,
    looks_like=_looks_like,
    read=_read,
    file="MXNet's symbol JSON",
    takes_shapes=True,
    takes_values=True,
)
