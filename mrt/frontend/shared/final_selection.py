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
        "aten.argsort.default",
        "aten.argsort.stable",
        "aten._unique2.default",
        "aten.index.Tensor by truth values",
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
"""Operators of all formats that sort, or whose number of results the data decide."""

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
