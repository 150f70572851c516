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
        "_contrib_MultiBoxDetection",
        "_contrib_box_nms",
        "aten.argsort.default",
        "aten.argsort.stable",
        "aten._unique2.default",
        "aten.kthvalue.default",
        "aten.masked_select.default",
        "aten.multinomial.default",
        "aten.nonzero.default",
        "aten.sort.default",
        "aten.sort.stable",
        "aten.topk.default",
        "aten.unique_dim.default",
        "torchvision.nms.default",
        "argsort",
        "sort",
        "topk",
    ]
)
"""Operators of ONNX, OpenVINO, TFLite, PyTorch and MXNet that sort, or whose number of results the data decide."""

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
        "BIDIRECTIONAL_SEQUENCE_LSTM",
        "BIDIRECTIONAL_SEQUENCE_RNN",
        "UNIDIRECTIONAL_SEQUENCE_LSTM",
        "UNIDIRECTIONAL_SEQUENCE_RNN",
        "aten.addmm.default",
        "aten.bmm.default",
        "aten.conv1d.default",
        "aten.conv2d.default",
        "aten.conv2d.padding",
        "aten.conv3d.default",
        "aten.convolution.default",
        "aten.linear.default",
        "aten.matmul.default",
        "aten.mm.default",
        "aten.scaled_dot_product_attention.default",
        "Deconvolution",
        "FullyConnected",
        "batch_dot",
        "dot",
    ]
)
"""What a network goes on with: a choice in front of one, as that of regions, is not its end."""


def chooses(kind: str) -> bool:
    """Whether an operator, as its format calls it, chooses among results."""
    return kind in _CHOOSING


def is_layer(kind: str) -> bool:
    """Whether an operator, as its format calls it, is a layer of a network."""
    return kind in _LAYERS
