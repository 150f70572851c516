"""The formats in which `mrt export` writes a saved model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from mrt.errors import ConfigError
from mrt.messages import short

_DIGITS = 9
"""Of the batch; no more samples than that are possible."""


@dataclass(frozen=True)
class ExportFormat:
    """One of them. `QuantizedModel` writes it by its method to_NAME, given a path and the batch.

    default_name: what is written in the model's folder where no path is given. about: what that is. path: what a path
    names. summary: a line about the files that were written, "" for none. takes_any_batch: whether the batch may be
    "any". takes: arguments of the method besides, which are options of the command.
    """

    name: str
    default_name: str
    about: str
    path: str = "the file"
    summary: Callable[[Sequence[Path]], str] = lambda files: ""
    takes_any_batch: bool = False
    takes: tuple[str, ...] = ()

    def batch(self, text: str | None) -> int | str | None:
        """The batch that the command is given; ConfigError where it is none of this format."""
        if text is None or (text == "any" and self.takes_any_batch):
            return text
        if not text.isdecimal() or len(text) > _DIGITS:
            needed = 'a number, or "any"' if self.takes_any_batch else "a number"
            raise ConfigError(f"--batch is {short(text)}; {needed} is needed for --format {self.name}")
        return int(text)

    def further(self, given: Mapping[str, str | None]) -> dict[str, str]:
        """The arguments among the options that the command is given; ConfigError for one that this format lacks."""
        found = {option: value for option, value in given.items() if value is not None}
        for option in found:
            if option not in self.takes:
                names = " and ".join(entry.name for entry in EXPORT_FORMATS if option in entry.takes)
                raise ConfigError(f"--{option} is an option of --format {names}, not of {self.name}; leave it out")
        return found


def _memory(files: Sequence[Path]) -> str:
    from mrt.export.c import sizes_in

    ram, rom = sizes_in(files[0].read_text())
    return f"{ram} bytes of RAM between input and output, {rom} bytes of ROM for parameters"


EXPORT_FORMATS = (
    ExportFormat("onnx", "model.onnx", "a model of ONNX's own operators", takes_any_batch=True, takes=("ends",)),
    ExportFormat("relay", "model.relay", "text of Relay's integer operators and model.params, for TVM 0.8 to 0.19"),
    ExportFormat(
        name="mxnet",
        default_name="model",
        about="model-symbol.json and model-0000.params of MXNet 1.x, exact in float64",
        path="the prefix of two files",
    ),
    ExportFormat(
        name="c",
        default_name="c",
        about="a folder of model.h and model.c, in C99 without floats, libraries and a runtime",
        path="the folder",
        summary=_memory,
        takes=("name",),
    ),
    ExportFormat(
        name="library",
        default_name="library",
        about="a folder of libmodel.so and model.h, compiled, without TVM and Python",
        path="the folder",
        takes=("name", "target"),
    ),
)


def export_format(name: str) -> ExportFormat:
    """The format of a name, which must be one of EXPORT_FORMATS."""
    return next(format for format in EXPORT_FORMATS if format.name == name)
