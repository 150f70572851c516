"""Makes this example of the folder of networks and data that MRT_DATA names: the same bytes every time.

    MRT_DATA=/path/to/data python examples/keywords/make.py

The network and its licence are copied. Of the samples 100 are taken to calibrate and 300 to test, as they are stored:
the features in int8 and their labels in uint8.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import numpy as np

FOLDER = Path(__file__).resolve().parent
NETWORK, SAMPLES = "models/onnx/kws_dscnn.onnx", "kws/kws01_1000.npz"
LICENCE = "licenses/mlcommons+tiny.txt"
PARTS = {"calibration": slice(0, 100), "test": slice(200, 500)}
"""Those that calibrate are of the 200 of which benchmarks calibrate, those that test of the others."""


def make(data: Path, folder: Path) -> None:
    """Writes the files of the example. data: the folder that MRT_DATA names."""
    shutil.copyfile(data / NETWORK, folder / "keywords.onnx")
    shutil.copyfile(data / LICENCE, folder / "LICENSE")
    with np.load(data / SAMPLES, allow_pickle=False) as samples:
        x, y = samples["x_int8"], samples["y"].astype(np.uint8)
    arrays = {f"{name}_{part}": array[places] for part, places in PARTS.items() for name, array in (("x", x), ("y", y))}
    # Not compressed: what a compressor writes depends on its version.
    np.savez(folder / "data.npz", **arrays)


def main() -> None:
    if not os.environ.get("MRT_DATA"):
        sys.exit("MRT_DATA is not set; set it to the folder of networks and data, benchmarks/configs/README.md")
    make(Path(os.environ["MRT_DATA"]), FOLDER)


if __name__ == "__main__":
    main()
