"""How a TFLite file begins."""

_IDENTIFIER = b"TFL3"
"""What stands from byte 4 on."""


def looks_like_tflite(start: bytes) -> bool:
    """Whether a file that begins like this is a flatbuffer of TFLite's schema, version 3."""
    return start.startswith(_IDENTIFIER, 4)
