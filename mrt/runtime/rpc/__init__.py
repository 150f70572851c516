"""Devices that are reached by TVM's RPC."""
