"""What an error of quantization tells to do, as it is written in Python, in a configuration and on the command line."""

from __future__ import annotations

from mrt.messages import inputs_option, split_option
from mrt.symbol import Symbol


def cut_off(symbol: Symbol) -> str:
    """How a symbol, and what follows it, is left to float post-processing."""
    return f"cut it off: {split_option([symbol.origin])}"


def given_integers(name: str) -> str:
    """How the integers of an input are declared."""
    return inputs_option(name)
