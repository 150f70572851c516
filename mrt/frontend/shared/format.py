"""What is known of a format of model files: how it is told from others, and what reads it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from mrt.errors import GraphError, ModelFileError
from mrt.messages import short
from mrt.symbol import Graph

Shapes = Mapping[str, Sequence[int]]
"""Shapes of inputs by their names."""

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
"""With which a text may begin."""


@dataclass(frozen=True)
class Format:
    """One format of model files.

    name: as its folder is called. extra: the extra of mrt-quantizer that its reader needs, called as the package that
    it installs; None where it needs none. looks_like: whether a file that begins with these bytes, 4,096 at most, is
    of this format. read: the graph of a file, for the size of a dynamic batch and the shapes of inputs; it imports
    what is heavy, so that whoever reads other files does not. file: what errors ask for, such as "an ONNX file".
    suffix: a file of this name that no format recognises is taken for a damaged one of this format. takes_shapes:
    whether a file may leave shapes of its inputs open, which are then given; otherwise `read` is given none.
    """

    name: str
    extra: str | None
    looks_like: Callable[[bytes], bool]
    read: Callable[[Path, int, Shapes], Graph]
    file: str
    suffix: str | None = None
    takes_shapes: bool = False

    def check_installed(self) -> None:
        """ModelFileError where the package of the extra is not installed."""
        if self.extra is None:
            return
        try:
            import_module(self.extra)
        except ImportError:
            raise ModelFileError(
                f"reading {self.file} needs the package {self.extra}; "
                f"install it with: pip install 'mrt-quantizer[{self.extra}]'"
            ) from None


def check_shapes(shapes: object) -> None:
    """GraphError unless `shapes` are sequences of lengths by name, or None."""
    if shapes is None:
        return
    if not isinstance(shapes, Mapping):
        raise GraphError(f"shapes is {short(shapes)}; a mapping of input names to shapes, or None, is needed")
    for name, shape in shapes.items():
        if not isinstance(name, str) or isinstance(shape, (str, bytes)) or not isinstance(shape, Sequence):
            raise GraphError(f"the shape given for input {short(name)} is {short(shape)}; (1, 3, 32, 32) is one")
