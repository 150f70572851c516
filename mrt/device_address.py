"""The address of a device: rpc://host:port/key."""

from __future__ import annotations

import math
from dataclasses import dataclass
from urllib.parse import parse_qsl, unquote, urlsplit

from mrt.errors import ConfigError
from mrt.messages import short

SCHEME, LIMIT = "rpc", "seconds"
SILENCE = 120.0
"""Seconds for which a device may owe an answer without a byte."""
WANTED = "rpc://host:port, with /key where the server or the tracker needs one, is needed"


@dataclass(frozen=True)
class Address:
    """Where a device is reached.

    key: of a server, or of what a tracker is asked for; "" for a server that was given none. seconds: for which the
    device may owe an answer without a byte coming.
    """

    host: str
    port: int
    key: str = ""
    seconds: float = SILENCE

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{SCHEME}://{host}:{self.port}" + (f"/{self.key}" if self.key else "")

    @classmethod
    def of(cls, text: object) -> Address:
        """The address in a text such as rpc://10.0.0.7:9090/pi4?seconds=600; ConfigError where it is none."""
        if not isinstance(text, str):
            raise ConfigError(f"device is {short(text)}; {WANTED}")
        try:
            parts = urlsplit(text)
            host, port, key = parts.hostname, parts.port, unquote(parts.path.removeprefix("/"))
            options = dict(parse_qsl(parts.query, strict_parsing=True)) if parts.query else {}
            seconds = float(options.pop(LIMIT, SILENCE))
        except ValueError as error:
            raise ConfigError(f"device is {short(text)} ({error}); {WANTED}") from None
        is_plain = parts.scheme == SCHEME and not (
            options or parts.fragment or parts.username or key.split() != [key] * bool(key)
        )
        if not is_plain or not host or not port or not 0 < seconds < math.inf:
            raise ConfigError(f"device is {short(text)}; {WANTED}")
        return cls(host, port, key, seconds)
