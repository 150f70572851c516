"""The Relay exporter: an integer graph as Relay text and a parameter file, one exporter per operator."""

from mrt.export.relay.module import to_relay

__all__ = ["to_relay"]
