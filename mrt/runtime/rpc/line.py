"""The line to a device: a program of its own that passes bytes on, and hangs up where the device falls silent.

TVM waits for a device without a limit, and holds the interpreter meanwhile, so that no thread of the same process could
end that. Run as a script, with nothing but Python's own library:

    python line.py HOST PORT KEY SECONDS_TO_CONNECT SECONDS_OF_SILENCE

It greets the device, says {"port": N} on standard output, and joins the one connection that comes to 127.0.0.1:N with
the device. What went wrong is its last line, {"problem": P, "detail": D}; it ends with its standard input.
"""

import json
import selectors
import socket
import struct
import sys
import time

MAGIC, MISMATCH = 0xFF271, 0xFF273
"""What both ends of TVM's RPC send first; the server's answer to a key that is not its own."""
CHUNK = 1 << 20
MOST_KEY = 1 << 12
LOOK = 0.2
"""Seconds between looks at the clock."""
REFUSED, SILENT, FOREIGN, WRONG_KEY, ENDED = "refused", "silent", "foreign", "wrong key", "ended"
"""The problems: nobody listens, no answer in time, no RPC server, another key is needed, the device hung up."""


class Problem(Exception):  # noqa: N818 - what is told of it is no Python error
    """One of the problems, and what is known of it."""


def greeted(host: str, port: int, key: str, seconds: float) -> tuple[socket.socket, bytes]:
    """A connection to the server that took the key, and what the server calls itself; raises Problem."""
    try:
        device = socket.create_connection((host, port), seconds)
    except TimeoutError:
        raise Problem(REFUSED, f"no connection in {seconds:g} s") from None
    except OSError as error:
        raise Problem(REFUSED, str(error.strerror or error)) from None
    device.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    try:
        text = f"client:{key}".encode()
        device.sendall(struct.pack("<ii", MAGIC, len(text)) + text)
        answer = struct.unpack("<i", received(device, 4))[0]
        if answer == MISMATCH:
            raise Problem(WRONG_KEY, "")
        if answer != MAGIC:
            raise Problem(FOREIGN, f"it answered {answer:#x}")
        length = struct.unpack("<i", received(device, 4))[0]
        if not 0 <= length <= MOST_KEY:
            raise Problem(FOREIGN, f"its name has {length} bytes")
        return device, received(device, length)
    except TimeoutError:
        raise Problem(SILENT, f"{seconds:g} s") from None
    except OSError as error:
        raise Problem(FOREIGN, str(error.strerror or error)) from None


def received(connection: socket.socket, count: int) -> bytes:
    """So many bytes; Problem where the connection ends before."""
    found = b""
    while len(found) < count:
        part = connection.recv(count - len(found))
        if not part:
            raise Problem(FOREIGN, "it hung up")
        found += part
    return found


def welcomed(listener: socket.socket, name: bytes) -> socket.socket:
    """The connection of this machine's TVM, greeted as the device would; nobody else's is taken after it."""
    client = listener.accept()[0]
    listener.close()
    length = struct.unpack("<ii", received(client, 8))[1]
    received(client, length)
    client.sendall(struct.pack("<ii", MAGIC, len(name)) + name)
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return client


def join(client: socket.socket, device: socket.socket, silence: float) -> None:
    """Passes bytes on until the client or standard input ends; Problem where the device ends, or owes an answer for
    `silence` seconds without a byte going either way."""
    others = {client: device, device: client}
    moved, is_owed = time.monotonic(), False
    device.settimeout(silence)
    client.settimeout(None)
    with selectors.DefaultSelector() as ends:
        for end in (client, device, sys.stdin):
            ends.register(end, selectors.EVENT_READ)
        while True:
            for ready, _ in ends.select(LOOK):
                end = ready.fileobj
                if not isinstance(end, socket.socket):
                    return
                data = end.recv(CHUNK)
                if not data:
                    if end is device:
                        raise Problem(ENDED, "")
                    return
                others[end].sendall(data)
                moved, is_owed = time.monotonic(), end is client
            if is_owed and time.monotonic() - moved > silence:
                raise Problem(SILENT, f"{silence:g} s")


def tell(**facts: object) -> None:
    print(json.dumps(facts), flush=True)


def main(host: str, port: str, key: str, connecting: str, silence: str) -> None:
    try:
        device, name = greeted(host, int(port), key, float(connecting))
        listener = socket.create_server(("127.0.0.1", 0))
        listener.settimeout(float(connecting))
        tell(port=listener.getsockname()[1])
        try:
            join(welcomed(listener, name), device, float(silence))
        except TimeoutError:
            raise Problem(SILENT, f"{float(silence):g} s") from None
        except OSError as error:
            raise Problem(ENDED, str(error.strerror or error)) from None
    except Problem as problem:
        tell(problem=problem.args[0], detail=problem.args[1])


if __name__ == "__main__":
    main(*sys.argv[1:])
