"""The options by which `mrt quantize` asks how samples are made what the network was trained on."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

_PANEL = "Data, by the words of a configuration"


def _option(name: str, metavar: str, about: str, **more: Any) -> Any:
    return typer.Option(name, metavar=metavar, help=about, rich_help_panel=_PANEL, **more)


Scale = Annotated[str | None, _option("--scale", "S", "Factor of every value, such as 1/255.")]
Mean = Annotated[str | None, _option("--mean", "M,M,M", "Is then subtracted, from each channel or from all.")]
Std = Annotated[str | None, _option("--std", "D,D,D", "Then divides.")]
Layout = Annotated[
    str | None,
    _option("--layout", "NHWC->NCHW", "How axes are transposed; of images so by default, for networks NHWC none."),
]
Mode = Annotated[str | None, _option("--mode", "RGB|BGR|L", "The channels of images; L is grey.")]
Resize = Annotated[str | None, _option("--resize", "N|H,W", "The shorter side of images, or both sides.")]
Crop = Annotated[str | None, _option("--crop", "N|H,W", "The central part of images that is taken.")]
X = Annotated[
    list[str] | None, _option("--x", "[INPUT=]ARRAY", "Arrays of the .npz file, by default those called as inputs.")
]
Y = Annotated[str | None, _option("--y", "ARRAY", "The array of the .npz file with the labels.")]
Labels = Annotated[
    Path | None, _option("--labels", "FILE", "A text of lines `image label`, or the .npy file with the labels.")
]
Samples = Annotated[int | None, _option("--samples", "N", "How many samples calibrate.", min=1)]
