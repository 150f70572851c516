"""The Relay reader: TVM's text format and its parameter files into a Graph, one converter per Relay operator."""

from mrt.frontend.relay.reader import from_relay, read_relay_file

__all__ = ["from_relay", "read_relay_file"]
