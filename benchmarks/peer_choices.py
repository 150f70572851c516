"""The ways in which MRT, ONNX Runtime and NNCF quantize a network: all that `peer_accuracy.py` tries."""

from __future__ import annotations

import sys
from argparse import ArgumentTypeError
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from mrt.config.source import Source

OURS = "MRT"
W8A8, W4A8 = "W8A8", "W4A8"
NEEDS = {OURS: (), "ONNX Runtime": ("onnxruntime", "sympy"), "NNCF": ("nncf", "openvino")}
TOOLS = {"mrt": OURS, "onnxruntime": "ONNX Runtime", "nncf": "NNCF"}


@dataclass(frozen=True)
class Choice:
    """One way to quantize. title: what its row is called; of those with the same title the best is shown.

    maker, arguments: of `makers.py`. outputs: the maker that runs what it makes. widths: those that it can make.
    """

    tool: str
    title: str
    how: str
    maker: str
    arguments: Mapping[str, Any]
    outputs: str
    widths: tuple[str, ...] = (W8A8, W4A8)
    validates: bool = False
    for_transformers: bool = False

    def arguments_for(self, widths: str) -> dict[str, Any]:
        weight, activation = bits_of(widths)
        if self.tool == OURS:
            return {**self.arguments, "options": with_bits(self.arguments["options"], weight, activation)}
        return {**self.arguments, **({} if widths == W8A8 else {"weight_bits": weight})}


def choices(tools: Iterable[str], settings: Sequence[str]) -> list[Choice]:
    """All ways of some tools. settings: of MRT, as --set takes them."""
    found: list[Choice] = []
    if OURS in tools:
        options, calibrate = own_options(settings)
        arguments = {"options": options, "calibrate": calibrate}
        how = ", ".join(settings) or "default"
        found.append(Choice(OURS, OURS, how, "mrt-model", arguments, "mrt-outputs", widths=()))
    if "ONNX Runtime" in tools:
        found += _of_onnx_runtime()
    if "NNCF" in tools:
        found += _of_nncf()
    return found


def _of_onnx_runtime() -> Iterator[Choice]:
    for calibration, symmetric in product(("MinMax", "Entropy", "Percentile"), (False, True)):
        how = f"{calibration}, {'symmetric' if symmetric else 'asymmetric'}"
        arguments = {"calibration": calibration, "symmetric": symmetric}
        yield Choice("ONNX Runtime", "ONNX Runtime", how, "ort-int8", arguments, "ort-outputs")


def _of_nncf() -> Iterator[Choice]:
    tool, outputs = "NNCF", "openvino-outputs"
    presets = ("performance", "mixed")
    for preset, correction, transformer in product(presets, ("none", "fast", "accurate"), (False, True)):
        how = f"{preset}, correction {correction}{', transformer' * transformer}"
        arguments = {"preset": preset, "correction": correction, "transformer": transformer}
        yield Choice(tool, tool, how, "openvino-nncf", arguments, outputs, for_transformers=transformer)
    for preset in presets:
        title, arguments = "NNCF, accuracy-aware", {"preset": preset}
        yield Choice(tool, title, preset, "openvino-nncf-accuracy", arguments, outputs, (W8A8,), validates=True)


def bits_of(widths: str) -> tuple[int, int]:
    """The bits of weights and activations: W4A8."""
    weight, _, activation = widths.upper().removeprefix("W").partition("A")
    if not (widths.upper().startswith("W") and weight.isdecimal() and activation.isdecimal()):
        raise ArgumentTypeError(f"{widths!r} was found; bits of weights and activations are needed, such as {W4A8}")
    return int(weight), int(activation)


def widths_of(text: str) -> str:
    """What reads widths."""
    weight, activation = bits_of(text)
    return f"W{weight}A{activation}"


def with_bits(options: Mapping[str, Any], weight: int, activation: int) -> dict[str, Any]:
    """Options with other bits than 8, which are not set: with nothing set MRT chooses."""
    found = dict(options)
    for name, bits in (("weight", weight), ("activation", activation)):
        if bits != 8:
            found[name] = {**found.get(name, {}), "bits": bits}
    return found


def own_options(settings: Sequence[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """What `--set` says of quantization and of calibration; SystemExit for other sections."""
    source = Source({}, {(): "--set"})
    for setting in settings:
        source = source.overridden(setting)
    found = dict(source.expanded())
    options, calibrate = found.pop("quantize", {}), found.pop("calibrate", {})
    if found:
        sys.exit(f"--set {', '.join(found)}: quantize.KEY=VALUE or calibrate.KEY=VALUE is needed")
    return options, calibrate
