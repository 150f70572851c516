"""Architectures of torchvision, timm and transformers, and small ones of our own, with random weights; seeded.

Nothing is downloaded. A fresh network is no example of a trained one: normalisations have the statistics of nothing,
scales and last layers begin as 0 so that whole blocks do nothing. `made_alive` gives all of them values.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

BATCH = 16
"""Samples that batch normalisations take their statistics from."""


def made_alive(network: nn.Module, samples: Sequence[Tensor], seed: int) -> nn.Module:
    """The network, in use, with no weight matrix of zeros, with scales and shifts that differ by channel.

    samples: the inputs, whose statistics batch normalisations take. A layer scale of ConvNeXt's kind, a small constant
    when training begins, is about a half.
    """
    torch.manual_seed(seed)
    with torch.no_grad():
        for module in network.modules():
            for name, value in module.named_parameters(recurse=False):
                _enliven(module, name, value)
    network.eval()
    norms = [module for module in network.modules() if isinstance(module, nn.modules.batchnorm._BatchNorm)]
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None
        norm.train()
    if norms:
        with torch.no_grad():
            network(*samples)
    return network.eval()


def _enliven(module: nn.Module, name: str, value: Tensor) -> None:
    normalises = "Norm" in type(module).__name__
    if normalises and name == "weight":
        value.copy_(torch.exp(0.3 * torch.randn_like(value)))
    elif normalises and name == "bias":
        value.copy_(0.2 * torch.randn_like(value))
    elif "scale" in name or name == "gamma":
        value.copy_(0.5 * torch.exp(0.3 * torch.randn_like(value)))
    elif value.dim() > 1 and not value.any():
        value.copy_(torch.randn_like(value) / value[0].numel() ** 0.5)
    elif value.dim() == 1 and not value.any():
        value.copy_(0.05 * torch.randn_like(value))


def import_torchvision() -> Any:
    """torchvision, which cannot be imported where its binary part is missing unless its operators have schemas."""
    try:
        import torchvision
    except RuntimeError:
        library = torch.library.Library("torchvision", "DEF")
        for name in ("nms", "qnms"):
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        for name in [name for name in sys.modules if name.split(".")[0] == "torchvision"]:
            del sys.modules[name]
        import torchvision

        torchvision.schemas = library  # which are gone with the object
    return torchvision


# Of packages


def _vision(name: str) -> Callable[[], nn.Module]:
    def build() -> nn.Module:
        network: nn.Module = import_torchvision().models.get_model(name, weights=None)
        return network

    return build


def _deeplab() -> nn.Module:
    models = import_torchvision().models.segmentation
    return First(models.deeplabv3_mobilenet_v3_large(weights=None, weights_backbone=None), "out")


def _timm(name: str) -> Callable[[], nn.Module]:
    def build() -> nn.Module:
        import_torchvision()
        import timm

        network: nn.Module = timm.create_model(name, pretrained=False)
        return network

    return build


class First(nn.Module):
    """A network whose result has names: one of them."""

    def __init__(self, network: nn.Module, key: str) -> None:
        super().__init__()
        self.network, self.key = network, key

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.network(x)[self.key]
        return found


class Words(nn.Module):
    """A network of transformers, from ids and a mask to its first result."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        found: Tensor = self.network(input_ids=input_ids, attention_mask=attention_mask, return_dict=False)[0]
        return found


class Tokens(nn.Module):
    """As `Words`, without a mask."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, input_ids: Tensor) -> Tensor:
        found: Tensor = self.network(input_ids=input_ids, use_cache=False, return_dict=False)[0]
        return found


class Heard(nn.Module):
    """An encoder of transformers, from a spectrogram to its states."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, input_features: Tensor) -> Tensor:
        found: Tensor = self.network(input_features, return_dict=False)[0]
        return found


def _import_transformers() -> None:
    """transformers imports torchvision, where there is one."""
    with suppress(ImportError):
        import_torchvision()


def _bert() -> nn.Module:
    _import_transformers()
    from transformers import BertConfig, BertModel

    return Words(BertModel(BertConfig()))


def _distilbert() -> nn.Module:
    _import_transformers()
    from transformers import DistilBertConfig, DistilBertModel

    return Words(DistilBertModel(DistilBertConfig()))


def _gpt2() -> nn.Module:
    _import_transformers()
    from transformers import GPT2Config, GPT2LMHeadModel

    return Tokens(GPT2LMHeadModel(GPT2Config(use_cache=False)))


def _whisper() -> nn.Module:
    _import_transformers()
    from transformers import WhisperConfig
    from transformers.models.whisper.modeling_whisper import WhisperEncoder

    sizes = {"d_model": 384, "encoder_layers": 4, "encoder_attention_heads": 6, "encoder_ffn_dim": 1536}
    return Heard(WhisperEncoder(WhisperConfig(**sizes)))


def trained_bert(folder: Path) -> nn.Module:
    """The BERT that a folder of transformers' files holds, weights as they are."""
    _import_transformers()
    from transformers import BertModel

    return Words(BertModel.from_pretrained(folder, local_files_only=True)).eval()


# Our own


def _convolution(inputs: int, outputs: int, kernel: int = 3, stride: int = 1) -> nn.Sequential:
    layer = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False)
    return nn.Sequential(layer, nn.BatchNorm2d(outputs), nn.SiLU())


class SplitBlock(nn.Module):
    """The split residual block of recent detectors: halves of the channels, of which one goes on and all are joined."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.half = outputs // 2
        self.enter, self.leave = _convolution(inputs, outputs, 1), _convolution(3 * self.half, outputs, 1)
        self.inner = nn.Sequential(_convolution(self.half, self.half), _convolution(self.half, self.half))

    def forward(self, x: Tensor) -> Tensor:
        first, second = self.enter(x).split(self.half, 1)
        found: Tensor = self.leave(torch.cat([first, second, second + self.inner(second)], 1))
        return found


class Detector(nn.Module):
    """A detector like YOLOv8: three scales, distances as expectations of a softmax, boxes and scores in one output."""

    BINS, CLASSES, STRIDES = 16, 20, (8, 16, 32)

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        w = width
        self.stem = nn.Sequential(_convolution(3, w, 3, 2), _convolution(w, 2 * w, 3, 2), SplitBlock(2 * w, 2 * w))
        self.down3 = nn.Sequential(_convolution(2 * w, 4 * w, 3, 2), SplitBlock(4 * w, 4 * w))
        self.down4 = nn.Sequential(_convolution(4 * w, 8 * w, 3, 2), SplitBlock(8 * w, 8 * w))
        self.down5 = nn.Sequential(_convolution(8 * w, 8 * w, 3, 2), SplitBlock(8 * w, 8 * w))
        self.squeeze, self.joined = _convolution(8 * w, 4 * w, 1), _convolution(16 * w, 8 * w, 1)
        self.up4, self.up3 = SplitBlock(16 * w, 8 * w), SplitBlock(12 * w, 4 * w)
        self.heads = nn.ModuleList(self._head(c) for c in (4 * w, 8 * w, 8 * w))
        self.register_buffer("bins", torch.arange(self.BINS, dtype=torch.float32))

    def _head(self, channels: int) -> nn.Sequential:
        return nn.Sequential(_convolution(channels, channels), nn.Conv2d(channels, 4 * self.BINS + self.CLASSES, 1))

    def forward(self, x: Tensor) -> Tensor:
        third = self.down3(self.stem(x))
        fourth = self.down4(third)
        fifth = self._pooled(self.squeeze(self.down5(fourth)))
        fourth = self.up4(torch.cat([nn.functional.interpolate(fifth, scale_factor=2), fourth], 1))
        third = self.up3(torch.cat([nn.functional.interpolate(fourth, scale_factor=2), third], 1))
        found = zip(self.heads, (third, fourth, fifth), self.STRIDES, strict=True)
        return torch.cat([self._decoded(head(level), stride) for head, level, stride in found], 2)

    def _pooled(self, x: Tensor) -> Tensor:
        pooled = [x]
        for _ in range(3):
            pooled.append(nn.functional.max_pool2d(pooled[-1], 5, 1, 2))
        found: Tensor = self.joined(torch.cat(pooled, 1))
        return found

    def _decoded(self, x: Tensor, stride: int) -> Tensor:
        """[N, 4 + CLASSES, places]: middle and size in pixels, and scores."""
        height, width = x.shape[2:]
        x = x.flatten(2)
        bins = x[:, : 4 * self.BINS].reshape(-1, 4, self.BINS, height * width)
        away = (bins.softmax(2) * self.bins[:, None]).sum(2)
        rows, columns = torch.meshgrid(torch.arange(height) + 0.5, torch.arange(width) + 0.5, indexing="ij")
        places = torch.stack([columns.flatten(), rows.flatten()])
        low, high = places - away[:, :2], places + away[:, 2:]
        return torch.cat([(low + high) / 2 * stride, (high - low) * stride, x[:, 4 * self.BINS :].sigmoid()], 1)


class UNet(nn.Module):
    """An encoder and a decoder with skips, transposed convolutions between its levels."""

    def __init__(self, width: int = 16, classes: int = 4) -> None:
        super().__init__()
        sizes = [width, 2 * width, 4 * width, 8 * width]
        self.down = nn.ModuleList(self._level(i, o) for i, o in zip([3, *sizes], sizes, strict=False))
        pairs = list(zip(sizes[:0:-1], sizes[-2::-1], strict=True))
        self.raise_ = nn.ModuleList(nn.ConvTranspose2d(i, o, 2, 2) for i, o in pairs)
        self.up = nn.ModuleList(self._level(2 * o, o) for _, o in pairs)
        self.last = nn.Conv2d(width, classes, 1)

    @staticmethod
    def _level(inputs: int, outputs: int) -> nn.Sequential:
        layers: list[nn.Module] = []
        for count in (inputs, outputs):
            layers += [nn.Conv2d(count, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU()]
        return nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        skips: list[Tensor] = []
        for level in self.down:
            skips.append(level(x if not skips else nn.functional.max_pool2d(skips[-1], 2)))
        x = skips.pop()
        for raised, level in zip(self.raise_, self.up, strict=True):
            x = level(torch.cat([skips.pop(), raised(x)], 1))
        found: Tensor = self.last(x)
        return found


class Listener(nn.Module):
    """Two layers of LSTM over a spectrogram, and scores of classes."""

    def __init__(self, bands: int = 80, width: int = 64, classes: int = 12) -> None:
        super().__init__()
        self.layers = nn.LSTM(bands, width, 2, batch_first=True)
        self.last = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        states, _ = self.layers(x.transpose(1, 2))
        found: Tensor = self.last(states[:, -1])
        return found


TORCHVISION = (
    "resnet18", "resnet50", "mobilenet_v2", "mobilenet_v3_large", "efficientnet_b0", "convnext_tiny", "vit_b_16",
    "swin_t",
)  # fmt: skip
NETWORKS: dict[str, Callable[[], nn.Module]] = {
    **{name: _vision(name) for name in TORCHVISION},
    "deit_tiny": _timm("deit_tiny_patch16_224"),
    "deeplab": _deeplab,
    "bert_base": _bert,
    "distilbert": _distilbert,
    "gpt2": _gpt2,
    "whisper_tiny": _whisper,
    "yolov8_like": Detector,
    "unet": UNet,
    "lstm": Listener,
}


def export(network: nn.Module, samples: Mapping[str, np.ndarray], program: Path, onnx: Path, opset: int) -> None:
    """Writes the network as torch.export saves it, its batch dynamic, and as ONNX.

    samples: two of each input, called and sorted as `forward` takes them.
    """
    batch = torch.export.Dim("batch")
    inputs = tuple(torch.from_numpy(value) for value in samples.values())
    exported = torch.export.export(network, inputs, dynamic_shapes=tuple({0: batch} for _ in inputs))
    torch.export.save(exported, program)
    written = torch.onnx.export(exported, dynamo=True, opset_version=opset)
    if written is None:
        raise RuntimeError("torch.onnx.export gave no program")
    written.save(onnx)
