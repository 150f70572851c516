"""How the .xml of an OpenVINO IR begins."""

from mrt.frontend.shared.format import BYTE_ORDER_MARK


def looks_like_ir(start: bytes) -> bool:
    """Whether a file that begins like this is the .xml of an IR."""
    head = start.removeprefix(BYTE_ORDER_MARK).lstrip()
    return head.startswith((b"<?xml", b"<net ")) and b"<net " in head
