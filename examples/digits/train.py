"""Trains the digits network and writes `digits.onnx` and `data.npz` beside this file.

Run with `pip install .[examples]` and `python examples/digits/train.py`; it takes less than a minute on one core.
On one machine the result is the same every time.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import Tensor, nn
from torch.nn import functional

FOLDER = Path(__file__).parent
SEED = 0
TEST_SAMPLES = 500
CALIBRATION_SAMPLES = 200
EPOCHS = 60
BATCH = 64
LEARNING_RATE = 0.01
WEIGHT_DECAY = 1e-4
PIXEL_SCALE = 1 / 16
"""Pixels are the integers 0 to 16; the network reads them times this."""


@dataclass(frozen=True)
class Split:
    """Images (N, 1, 8, 8) in uint8, 0 to 16, and their classes (N,) in int64."""

    x: np.ndarray
    y: np.ndarray

    def tensors(self) -> tuple[Tensor, Tensor]:
        return torch.from_numpy(self.x.astype(np.float32) * np.float32(PIXEL_SCALE)), torch.from_numpy(self.y)


class ConvolutionNorm(nn.Module):
    """Convolution without bias that keeps height and width, then batch normalisation."""

    def __init__(self, channels_in: int, channels_out: int, kernel: int = 3, groups: int = 1) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(channels_in, channels_out, kernel, padding=kernel // 2, groups=groups, bias=False)
        self.norm = nn.BatchNorm2d(channels_out)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(self.convolution(x))


class DigitsNetwork(nn.Module):
    """(N, 1, 8, 8) to logits (N, 10): a residual block, a depthwise separable branch and its shortcut, a classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = ConvolutionNorm(1, 16)
        self.residual1 = ConvolutionNorm(16, 16)
        self.residual2 = ConvolutionNorm(16, 16)
        self.depthwise = ConvolutionNorm(16, 16, groups=16)
        self.pointwise = ConvolutionNorm(16, 24, kernel=1)
        self.head = ConvolutionNorm(40, 32)
        self.classifier = nn.Linear(32 * 2 * 2, 10)

    def forward(self, x: Tensor) -> Tensor:
        stem = functional.relu(self.stem(x))
        residual = self.residual2(functional.relu(self.residual1(stem)))
        pooled = functional.max_pool2d(functional.relu(stem + residual), 2)
        branch = functional.relu(self.pointwise(functional.relu(self.depthwise(pooled))))
        head = functional.relu(self.head(torch.cat([pooled, branch], 1)))
        return self.classifier(torch.flatten(functional.avg_pool2d(head, 2), 1))


class OnnxWriter:
    """Collects nodes and initializers under the names of the torch modules that they come from."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: list[onnx.TensorProto] = []

    def node(self, kind: str, inputs: list[str], output: str, **attributes: object) -> str:
        self.nodes.append(helper.make_node(kind, inputs, [output], name=output, **attributes))
        return output

    def parameter(self, tensor: Tensor, name: str) -> str:
        self.initializers.append(numpy_helper.from_array(tensor.detach().numpy(), name))
        return name

    def convolution_norm(self, module: ConvolutionNorm, x: str, name: str) -> str:
        """Both operators of `module`, left apart as training frameworks export them before any optimisation."""
        convolution, norm = module.convolution, module.norm
        y = self.node(
            "Conv",
            [x, self.parameter(convolution.weight, f"{name}.weight")],
            f"{name}.convolution",
            kernel_shape=convolution.kernel_size,
            pads=list(convolution.padding) * 2,
            group=convolution.groups,
        )
        statistics = {
            "gamma": norm.weight,
            "beta": norm.bias,
            "mean": norm.running_mean,
            "variance": norm.running_var,
        }
        parameters = [self.parameter(tensor, f"{name}.{key}") for key, tensor in statistics.items()]
        return self.node("BatchNormalization", [y, *parameters], f"{name}.norm", epsilon=norm.eps)


def load_splits() -> tuple[Split, Split, Split]:
    """Training, calibration and test samples; calibration is a part of training, test is neither's."""
    digits = load_digits()
    x = digits.images.astype(np.uint8)[:, np.newaxis]
    y = digits.target.astype(np.int64)
    x_train, x_test, y_train, y_test = train_test_split(x, y, test_size=TEST_SAMPLES, random_state=SEED, stratify=y)
    train, test = Split(x_train, y_train), Split(x_test, y_test)
    calibration = Split(x_train[:CALIBRATION_SAMPLES], y_train[:CALIBRATION_SAMPLES])
    return train, calibration, test


def shift_randomly(x: Tensor) -> Tensor:
    """The batch (N, 1, 8, 8) moved by up to one pixel in each direction, zeros coming in."""
    dy, dx = torch.randint(0, 3, (2,)).tolist()
    return functional.pad(x, (1, 1, 1, 1))[:, :, dy : dy + 8, dx : dx + 8]


def train(network: DigitsNetwork, split: Split) -> None:
    """Trains in place with Adam and one cycle of the learning rate."""
    x, y = split.tensors()
    steps = EPOCHS * -(-len(x) // BATCH)
    optimizer = torch.optim.AdamW(network.parameters(), lr=LEARNING_RATE, weight_decay=WEIGHT_DECAY)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, LEARNING_RATE, total_steps=steps)
    network.train()
    for _ in range(EPOCHS):
        for chosen in torch.randperm(len(x)).split(BATCH):
            optimizer.zero_grad()
            logits = network(shift_randomly(x[chosen]))
            functional.cross_entropy(logits, y[chosen], label_smoothing=0.05).backward()
            optimizer.step()
            schedule.step()
    network.eval()


def to_onnx(network: DigitsNetwork) -> onnx.ModelProto:
    """The network in inference form with a softmax at its end, opset 17, the batch dynamic."""
    writer = OnnxWriter()
    block = writer.convolution_norm
    stem = writer.node("Relu", [block(network.stem, "image", "stem")], "stem.relu")
    residual = writer.node("Relu", [block(network.residual1, stem, "residual1")], "residual1.relu")
    total = writer.node("Add", [stem, block(network.residual2, residual, "residual2")], "residual.add")
    pooled = writer.node("Relu", [total], "residual.relu")
    pooled = writer.node("MaxPool", [pooled], "residual.pool", kernel_shape=[2, 2], strides=[2, 2])
    branch = writer.node("Relu", [block(network.depthwise, pooled, "depthwise")], "depthwise.relu")
    branch = writer.node("Relu", [block(network.pointwise, branch, "pointwise")], "pointwise.relu")
    joined = writer.node("Concat", [pooled, branch], "concat", axis=1)
    head = writer.node("Relu", [block(network.head, joined, "head")], "head.relu")
    head = writer.node("AveragePool", [head], "head.pool", kernel_shape=[2, 2], strides=[2, 2])
    flat = writer.node("Flatten", [head], "flatten")
    weight = writer.parameter(network.classifier.weight, "classifier.weight")
    bias = writer.parameter(network.classifier.bias, "classifier.bias")
    logits = writer.node("Gemm", [flat, weight, bias], "classifier", transB=1)
    writer.node("Softmax", [logits], "probabilities", axis=1)
    graph = helper.make_graph(
        writer.nodes,
        "digits",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["batch", 1, 8, 8])],
        [helper.make_tensor_value_info("probabilities", TensorProto.FLOAT, ["batch", 10])],
        writer.initializers,
    )
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8, producer_name="MRT digits example"
    )
    onnx.checker.check_model(model, full_check=True)
    return model


def accuracy(probabilities: np.ndarray, y: np.ndarray) -> float:
    return float((probabilities.argmax(1) == y).mean())


def main() -> None:
    torch.manual_seed(SEED)
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    training, calibration, test = load_splits()
    network = DigitsNetwork()
    train(network, training)

    model = to_onnx(network)
    x, _ = test.tensors()
    with torch.no_grad():
        expected = functional.softmax(network(x), 1).numpy()
    found = ReferenceEvaluator(model).run(None, {"image": x.numpy()})[0]
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)

    onnx.save(model, FOLDER / "digits.onnx")
    np.savez_compressed(
        FOLDER / "data.npz",
        x_calibration=calibration.x,
        y_calibration=calibration.y.astype(np.uint8),
        x_test=test.x,
        y_test=test.y.astype(np.uint8),
    )
    print(f"parameters: {sum(p.numel() for p in network.parameters())}")
    print(f"largest difference of ONNX and torch: {np.abs(found - expected).max():.1e}")
    print(f"float test accuracy: {accuracy(expected, test.y):.4f} of {len(test.y)} samples")


if __name__ == "__main__":
    main()
