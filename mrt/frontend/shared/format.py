"""What is known of a format of model files: how it is told from others, and what reads it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from mrt.errors import ModelFileError
from mrt.frontend.shared.inputs import ReadOptions
from mrt.symbol import Graph

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
"""With which a text may begin."""


@dataclass(frozen=True)
class Format:
    """One format of model files.

    name: as its folder is called. extra: the extra of mrt-quantizer that its reader needs, called as the package that
    it installs; None where it needs none. looks_like: whether a file that begins with these bytes, 4,096 at most, is
    of this format. read: the graph of a file, with what the user says of its inputs; it imports what is heavy, so that
    whoever reads other files does not. file: what errors ask for, such as "an ONNX file". suffix: a file of this name
    that no format recognises is taken for a damaged one of this format. takes_shapes, takes_values: whether `read`
    heeds shapes and values of inputs; otherwise it is given none. takes_random_params: whether it draws parameters that
    the file lacks; otherwise that is refused.
    """

    name: str
    extra: str | None
    looks_like: Callable[[bytes], bool]
    read: Callable[[Path, ReadOptions], Graph]
    file: str
    suffix: str | None = None
    takes_shapes: bool = False
    takes_values: bool = False
    takes_random_params: bool = False

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
