"""A tracker and servers of TVM's RPC on 127.0.0.1, each a process: `python serve.py KEY [KEY …]`.

Prints as JSON the port of the tracker, to which a server reports with the first key, or null where tornado, which it
needs, is not installed; and of servers that report to nobody, one a key, the ports and processes. Ends with its
standard input.
"""

import json
import os
import signal
import sys
from collections.abc import Callable
from typing import Any

sys.modules["torch"] = None  # type: ignore[assignment]  # TVM loads it wherever it is installed

from tvm.rpc.server import PopenRPCServerState  # noqa: E402

HOST, PORTS = "127.0.0.1", {"port": 21000, "port_end": 29999}


def track() -> Any:
    try:
        from tvm.rpc.tracker import PopenTrackerServerState
    except ImportError:
        return None
    return PopenTrackerServerState(HOST, **PORTS, silent=True).port


def forked(start: Callable[[], Any]) -> tuple[int, Any]:
    """The process in which `start` was called, whose threads go on, and what it gave."""
    readable, writable = os.pipe()
    pid = os.fork()
    if not pid:
        os.write(writable, json.dumps(start()).encode())
        os.close(writable)
        signal.pause()
    os.close(writable)
    with os.fdopen(readable) as file:
        return pid, json.load(file)


def main(keys: list[str]) -> None:
    os.setpgid(0, 0)

    def serve(key: str, **more: Any) -> Any:
        return forked(lambda: PopenRPCServerState(HOST, **PORTS, key=key, silent=True, **more).port)

    tracker = forked(track)[1]
    if tracker is not None:
        serve(keys[0], tracker_addr=(HOST, tracker))
    print(json.dumps({"tracker": tracker, "servers": [serve(key) for key in keys]}), flush=True)
    while os.read(0, 1):
        pass
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    main(sys.argv[1:])
