"""Telling the format of a model file by its content, whatever it is called."""

from __future__ import annotations

import re
from pathlib import Path

from mrt.errors import ModelFileError
from mrt.frontend.mxnet.params import PARAMS_MAGIC

_READ = 4096
"""How much of a file is looked at."""

_RELAY = re.compile(rb"^\s*(#\[version\s*=|def\s+@)", re.MULTILINE)
TFLITE_IDENTIFIER = b"TFL3"
"""What stands in a TFLite file from byte 4 on."""
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
"""With which a text may begin."""
_ONNX_FIRST_FIELD = b"\x08"
"""The tag of ir_version, with which every writer begins an ONNX file, since it is field 1."""
_ZIP = (b"PK\x03\x04", b"PK\x05\x06")
"""What a zip archive begins with, the second where it is empty. The one kind of model in a zip archive is PyTorch's."""


def sniff_format(path: Path) -> str:
    """ "onnx", "mxnet" (a symbol JSON), "relay" (a text), "tflite", "openvino" (the .xml) or "torch" (an archive).

    ModelFileError where the file is none of them.

    A file called .onnx or .tflite is that unless it is plainly one of the others: it may be damaged, which its reader
    explains.
    """
    try:
        with path.open("rb") as file:
            start = file.read(_READ)
    except OSError as error:
        raise ModelFileError(f"{path} cannot be read: {error.strerror}") from None
    if start.startswith(_ZIP):
        return "torch"
    if start[4:8] == TFLITE_IDENTIFIER:
        return "tflite"
    if looks_like_ir(start):
        return "openvino"
    if start.removeprefix(_BYTE_ORDER_MARK).lstrip().startswith(b"{"):
        return "mxnet"
    if _RELAY.search(start):
        return "relay"
    if start.startswith(PARAMS_MAGIC):
        raise ModelFileError(f"{path} holds the parameters of an MXNet model; give its NAME-symbol.json beside them")
    if path.suffix.lower() == ".onnx" or start.startswith(_ONNX_FIRST_FIELD):
        return "onnx"
    if path.suffix.lower() == ".tflite":
        return "tflite"
    raise ModelFileError(
        f"{path} is no model that is read: an ONNX file, MXNet symbol JSON, Relay text, TFLite file, OpenVINO's .xml "
        "or PyTorch's .pt2 is needed"
    )


def looks_like_ir(start: bytes) -> bool:
    """Whether a file that starts like this is the .xml of an OpenVINO IR."""
    head = start.removeprefix(_BYTE_ORDER_MARK).lstrip()
    return head.startswith((b"<?xml", b"<net ")) and b"<net " in head
