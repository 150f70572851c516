"""Telling the format of a model file by its content, whatever it is called."""

from __future__ import annotations

import re
from pathlib import Path

from mrt.errors import ModelFileError
from mrt.frontend.mxnet.params import PARAMS_MAGIC

_READ = 4096
"""How much of a file is looked at."""

_RELAY = re.compile(rb"^\s*(#\[version\s*=|def\s+@)", re.MULTILINE)
_ONNX_FIRST_FIELD = b"\x08"
"""The tag of ir_version, with which every writer begins an ONNX file, since it is field 1."""


def sniff_format(path: Path) -> str:
    """ "onnx", "mxnet" (a symbol JSON) or "relay" (a text); ModelFileError where the file is none of them.

    A file called .onnx is ONNX unless it is plainly one of the others: it may be damaged, which its reader explains.
    """
    try:
        with path.open("rb") as file:
            start = file.read(_READ)
    except OSError as error:
        raise ModelFileError(f"{path} cannot be read: {error.strerror}") from None
    if start.removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b"{"):
        return "mxnet"
    if _RELAY.search(start):
        return "relay"
    if start.startswith(PARAMS_MAGIC):
        raise ModelFileError(f"{path} holds the parameters of an MXNet model; give its NAME-symbol.json beside them")
    if path.suffix.lower() == ".onnx" or start.startswith(_ONNX_FIRST_FIELD):
        return "onnx"
    raise ModelFileError(f"{path} is no model that is read: an ONNX file, MXNet symbol JSON or Relay text is needed")
