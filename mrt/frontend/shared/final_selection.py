"""Operators that end a network by choosing among its results, which no static graph of integers can do."""

from __future__ import annotations

_CHOOSING = frozenset(
    [
        "Compress",
        "NonMaxSuppression",
        "NonZero",
        "TopK",
        "Unique",
        "com.microsoft.NonMaxSuppression",
        "TRT.EfficientNMS_TRT",
        "DetectionOutput",
        "ExperimentalDetectronDetectionOutput",
        "MatrixNms",
        "MulticlassNms",
        "NON_MAX_SUPPRESSION_V4",
        "NON_MAX_SUPPRESSION_V5",
        "TFLite_Detection_PostProcess",
        "TOPK_V2",
        "UNIQUE",
        "WHERE",
        "relax.argsort",
        "relax.dynamic_topk",
        "relax.nonzero",
        "relax.sort",
        "relax.topk",
        "relax.unique",
        "relax.vision.all_class_non_max_suppression",
        "relax.vision.get_valid_counts",
        "relax.vision.multibox_transform_loc",
        "relax.vision.non_max_suppression",
        "_contrib_MultiBoxDetection",
        "_contrib_box_nms",
        "argsort",
        "argwhere",
        "sort",
        "topk",
        "unique",
        "vision.all_class_non_max_suppression",
        "vision.get_valid_counts",
        "vision.multibox_transform_loc",
        "vision.non_max_suppression",
    ]
)
"""Operators of ONNX, OpenVINO, TFLite, MXNet, Relay and Relax that sort, or whose number of results the data decide."""

_LAYERS = frozenset(
    [
        "Conv",
        "ConvInteger",
        "ConvTranspose",
        "Gemm",
        "GRU",
        "LSTM",
        "MatMul",
        "MatMulInteger",
        "QLinearConv",
        "QLinearMatMul",
        "RNN",
        "Convolution",
        "ConvolutionBackpropData",
        "GroupConvolution",
        "GroupConvolutionBackpropData",
        "GRUSequence",
        "LSTMSequence",
        "BATCH_MATMUL",
        "CONV_2D",
        "CONV_3D",
        "DEPTHWISE_CONV_2D",
        "FULLY_CONNECTED",
        "TRANSPOSE_CONV",
        "UNIDIRECTIONAL_SEQUENCE_LSTM",
        "Deconvolution",
        "FullyConnected",
        "batch_dot",
        "dot",
        "nn.batch_matmul",
        "nn.dense",
        "nn.matmul",
        "relax.matmul",
        *(f"{prefix}nn.conv{n}d{kind}" for prefix in ("", "relax.") for n in (1, 2, 3) for kind in ("", "_transpose")),
    ]
)
"""What a network goes on with: a choice in front of one, as that of regions, is not its end."""


def chooses(kind: str) -> bool:
    """Whether an operator, as its format calls it, chooses among results."""
    return kind in _CHOOSING


def is_layer(kind: str) -> bool:
    """Whether an operator, as its format calls it, is a layer of a network."""
    return kind in _LAYERS
