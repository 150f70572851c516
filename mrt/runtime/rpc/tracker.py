"""TVM's tracker, which lends devices by key: whether an address is one, and what it lends."""

from __future__ import annotations

import json
import socket
import struct
from typing import Any

from mrt.device_address import Address
from mrt.errors import DeviceError

MAGIC = 0x2F271
SUCCESS, REQUEST, SUMMARY = 0, 4, 6
"""TVM's codes."""
MOST_BYTES = 1 << 24
CONNECT_SECONDS = 10.0
"""For a connection, and for what is answered at once."""


def lent(address: Address) -> Address:
    """The server that a tracker at `address` lends for its key, by the key that this server takes once; `address`
    itself where no tracker answers there.

    Raises DeviceError for a key that no server has there, or where all that have it are lent for too long.
    """
    try:
        connection = socket.create_connection((address.host, address.port), min(CONNECT_SECONDS, address.seconds))
    except OSError:
        return address  # what is wrong is said where the server itself is connected to
    with connection:
        if not _is_tracker(connection):
            return address
        try:
            _check_key(address, _asked(connection, [SUMMARY]))
            connection.settimeout(address.seconds)
            host, port, key = _asked(connection, [REQUEST, address.key, "", 1])
        except TimeoutError:
            raise DeviceError(
                f"{address}: the tracker lent no server of this key for {address.seconds:g} s; others use them: try "
                f"later, or start another one"
            ) from None
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise DeviceError(f"{address}: the tracker cannot be talked to ({error}); start it anew") from None
    return Address(str(host), int(port), str(key), address.seconds)


def _is_tracker(connection: socket.socket) -> bool:
    """Whether a tracker answers; a server hangs up, or says nothing as long as it serves somebody else."""
    try:
        connection.sendall(struct.pack("<i", MAGIC))
        return _received(connection, 4) == struct.pack("<i", MAGIC)
    except (OSError, ValueError):
        return False


def _check_key(address: Address, summary: Any) -> None:
    keys = sorted({str(entry["key"]).removeprefix("server:") for entry in summary["server_info"]})
    if address.key not in keys:
        raise DeviceError(
            f"{address}: the tracker knows no server of key {address.key}; it has "
            f"{', '.join(keys) or 'none at all'}: start one by python -m tvm.exec.rpc_server --tracker "
            f"{address.host}:{address.port} --key {address.key}"
        )


def _asked(connection: socket.socket, question: list[Any]) -> Any:
    content = json.dumps(question).encode()
    connection.sendall(struct.pack("<i", len(content)) + content)
    length = struct.unpack("<i", _received(connection, 4))[0]
    if not 0 <= length <= MOST_BYTES:
        raise ValueError(f"an answer of {length} bytes")
    answer = json.loads(_received(connection, length))
    if answer[0] != SUCCESS:
        raise ValueError(str(answer))
    return answer[1]


def _received(connection: socket.socket, count: int) -> bytes:
    found = b""
    while len(found) < count:
        part = connection.recv(count - len(found))
        if not part:
            raise ValueError("it hung up")
        found += part
    return found
