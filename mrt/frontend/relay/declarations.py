"""What Relay declares of its operators: how many inputs they take, and the attributes with their defaults.

A text states only attributes that differ from the default.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from mrt.frontend.relay.syntax import AttributeValue

REQUIRED: Final = "(required)"
"""Stands for the default of an attribute that has none."""

Attributes = Mapping[str, AttributeValue]


@dataclass(frozen=True)
class Declaration:
    """One operator; `attributes` gives the default of each."""

    inputs: int
    attributes: Attributes


_LAYOUTS = {1: "NCW", 2: "NCHW", 3: "NCDHW"}
_KERNEL_LAYOUTS = {1: "OIW", 2: "OIHW", 3: "OIDHW"}
_REDUCTION: Attributes = {"axis": None, "keepdims": False, "exclude": False}
_ARGUMENT: Attributes = {**_REDUCTION, "select_last_index": False}
_TRANSPOSED: Attributes = {"out_dtype": "", "transpose_a": False, "transpose_b": False}
_CHANNELS: Attributes = {"epsilon": 1e-5, "center": True, "scale": True}
_BLOCKS: Attributes = {"block_size": 1, "layout": "NCHW", "mode": "DCR"}
_FILLED: Attributes = {"shape": REQUIRED, "dtype": ""}
_TWO_AXES: Attributes = {"lhs_axis": -1, "rhs_axis": -1}


def _window(spatial: int) -> Attributes:
    return {"strides": [1] * spatial, "padding": [0] * (2 if spatial < 3 else 3), "dilation": [1] * spatial}


def _convolution(spatial: int) -> Attributes:
    return {
        **_window(spatial),
        "groups": 1,
        "channels": None,
        "kernel_size": None,
        "data_layout": _LAYOUTS[spatial],
        "kernel_layout": _KERNEL_LAYOUTS[spatial],
        "out_layout": "",
        "out_dtype": "",
    }


def _deconvolution(spatial: int) -> Attributes:
    kernel_layout = "IO" + _KERNEL_LAYOUTS[spatial][2:]
    return {**_convolution(spatial), "output_padding": [0] * spatial, "kernel_layout": kernel_layout}


def _pool(spatial: int, average: bool) -> Attributes:
    return {
        "pool_size": REQUIRED,
        **_window(spatial),
        "layout": _LAYOUTS[spatial],
        "out_layout": "",
        "ceil_mode": False,
        **({"count_include_pad": False} if average else {}),
    }


def _resize(layout: str) -> Attributes:
    return {
        "size": None,
        "roi": None,
        "layout": layout,
        "method": "linear",
        "coordinate_transformation_mode": "half_pixel",
        "rounding_method": "round",
        "cubic_alpha": -0.5,
        "cubic_exclude": 0,
        "extrapolation_value": 0.0,
        "out_dtype": "",
    }


def _same(inputs: int, attributes: Attributes, *operators: str) -> dict[str, Declaration]:
    return dict.fromkeys(operators, Declaration(inputs, attributes))


DECLARATIONS: dict[str, Declaration] = {
    **_same(1, {}, "abs", "ceil", "copy", "erf", "exp", "floor", "log", "negative", "nn.batch_flatten", "nn.relu"),
    **_same(1, {}, "round", "rsqrt", "sigmoid", "sign", "sqrt", "tanh", "trunc", "ones_like", "zeros_like"),
    **_same(
        1, {}, "annotation.stop_fusion", "cos", "logical_not", "isnan", "isinf", "sin", "tan", "acos", "asin", "atan"
    ),
    **_same(1, {}, "cosh", "sinh", "acosh", "asinh", "atanh"),
    **_same(2, {}, "add", "subtract", "multiply", "divide", "maximum", "minimum", "power", "cast_like"),
    **_same(2, {}, "floor_divide", "floor_mod", "left_shift", "right_shift", "broadcast_to_like", "full_like"),
    **_same(2, {}, "bitwise_and", "mod"),
    **_same(2, {}, "equal", "not_equal", "greater", "greater_equal", "less", "less_equal"),
    **_same(2, {}, "logical_and", "logical_or", "logical_xor"),
    **_same(3, {}, "where"),
    **_same(1, {"dtype": REQUIRED}, "cast"),
    **_same(1, {"dtype": ""}, "shape_of", "ndarray_size"),
    **_same(1, {"a_min": REQUIRED, "a_max": REQUIRED}, "clip"),
    **_same(1, {"rate": 0.5}, "nn.dropout"),
    **_same(1, {"alpha": 0.25}, "nn.leaky_relu"),
    **_same(2, {"axis": 1}, "nn.prelu", "nn.bias_add"),
    **_same(1, {"axis": -1}, "nn.softmax", "nn.log_softmax"),
    **_same(1, _REDUCTION, "sum", "mean", "max", "min", "prod"),
    **_same(2, {**_REDUCTION, "unbiased": False}, "variance"),
    **_same(1, _ARGUMENT, "argmax", "argmin"),
    **_same(1, {"axis": 0}, "concatenate", "stack"),
    **_same(1, {"axis": REQUIRED, "num_newaxis": 1}, "expand_dims"),
    **_same(1, {"axis": None}, "squeeze", "reverse"),
    **_same(1, {"axes": REQUIRED}, "transpose"),
    **_same(1, {"newshape": REQUIRED, "allowzero": False}, "reshape"),
    **_same(2, {"lhs_begin": 0, "lhs_end": None, "rhs_begin": 0, "rhs_end": None}, "reshape_like"),
    **_same(2, {"axes": REQUIRED}, "slice_like"),
    **_same(1, {"src_layout": REQUIRED, "dst_layout": REQUIRED}, "layout_transform"),
    **_same(1, {"indices_or_sections": REQUIRED, "axis": 0}, "split"),
    **_same(
        1,
        {"begin": REQUIRED, "end": REQUIRED, "strides": REQUIRED, "slice_mode": "end", "axes": REQUIRED},
        "strided_slice",
    ),
    **_same(
        4,
        {"begin": REQUIRED, "end": REQUIRED, "strides": REQUIRED, "slice_mode": "end", "axes": REQUIRED},
        "dyn.strided_slice",
    ),
    **_same(2, {"newshape": None, "allowzero": False}, "dyn.reshape"),
    **_same(2, {"shape": None, "dtype": ""}, "dyn.broadcast_to"),
    **_same(2, {}, "dyn.tile"),
    **_same(3, {"pad_width": REQUIRED, "pad_mode": "constant"}, "dyn.nn.pad"),
    **_same(3, {"axis": 0, "reduction": "update"}, "scatter_elements"),
    **_same(2, {"batch_dims": 0, "axis": None, "mode": "clip"}, "take"),
    **_same(1, {"reps": REQUIRED}, "tile"),
    **_same(1, {"repeats": REQUIRED, "axis": None}, "repeat"),
    **_same(1, _FILLED, "broadcast_to", "full"),
    **_same(0, _FILLED, "ones", "zeros"),
    **_same(3, {"start": None, "stop": None, "step": None, "dtype": ""}, "arange"),
    **_same(2, {"pad_width": REQUIRED, "pad_mode": "constant"}, "nn.pad"),
    **_same(1, {"mode": "SYMMETRIC", "pad_width": REQUIRED}, "nn.mirror_pad"),
    **_same(1, _BLOCKS, "nn.depth_to_space", "nn.space_to_depth"),
    **_same(
        1,
        {
            "scale_h": REQUIRED,
            "scale_w": REQUIRED,
            "layout": "NCHW",
            "method": "nearest_neighbor",
            "align_corners": False,
        },
        "nn.upsampling",
    ),
    **_same(1, _resize("NCW"), "image.resize1d"),
    **_same(1, _resize("NCHW"), "image.resize2d"),
    **_same(1, _resize("NCDHW"), "image.resize3d"),
    **_same(
        2, {"method": "bilinear", "layout": "NCHW", "padding_mode": "zeros", "align_corners": True}, "image.grid_sample"
    ),
    **_same(2, {"units": REQUIRED, "out_dtype": ""}, "nn.dense"),
    **_same(2, {"units": REQUIRED, **_TRANSPOSED}, "nn.matmul"),
    **_same(2, _TRANSPOSED, "nn.batch_matmul"),
    **_same(5, {"axis": 1, **_CHANNELS}, "nn.batch_norm"),
    **_same(3, {"axis": 1, **_CHANNELS}, "nn.instance_norm"),
    **_same(3, {"axis": -1, **_CHANNELS}, "nn.layer_norm"),
    **_same(3, {"num_groups": 0, "axis": 1, **_CHANNELS}, "nn.group_norm"),
    **_same(1, {"eps": REQUIRED, "axis": REQUIRED}, "nn.l2_normalize"),
    **_same(1, {"size": 5, "axis": 1, "bias": 2.0, "alpha": 1e-4, "beta": 0.75}, "nn.lrn"),
    **{f"nn.conv{n}d": Declaration(2, _convolution(n)) for n in (1, 2, 3)},
    **{f"nn.conv{n}d_transpose": Declaration(2, _deconvolution(n)) for n in (1, 2, 3)},
    **{f"nn.max_pool{n}d": Declaration(1, _pool(n, False)) for n in (1, 2, 3)},
    **{f"nn.avg_pool{n}d": Declaration(1, _pool(n, True)) for n in (1, 2, 3)},
    **{
        f"nn.global_{kind}_pool{n}d": Declaration(1, {"layout": _LAYOUTS[n], "out_layout": ""})
        for n in (1, 2, 3)
        for kind in ("avg", "max")
    },
    **{
        f"nn.adaptive_{kind}_pool{n}d": Declaration(1, {"output_size": [], "layout": _LAYOUTS[n], "out_layout": ""})
        for n in (1, 2, 3)
        for kind in ("avg", "max")
    },
    **_same(1, {"multiplier": REQUIRED, "shift": REQUIRED}, "fixed_point_multiply"),
    **_same(
        4,
        {"is_lshift_required": False, "is_rshift_required": False, "axes": REQUIRED},
        "fixed_point_multiply_per_axis",
    ),
    **_same(3, {"out_dtype": REQUIRED, "axis": -1}, "qnn.quantize", "qnn.dequantize"),
    **_same(5, {"axis": -1, "rounding": "None", "compute_dtype": "None", "out_dtype": ""}, "qnn.requantize"),
    **_same(6, _convolution(2), "qnn.conv2d"),
    **_same(6, _deconvolution(2), "qnn.conv2d_transpose"),
    **_same(6, {"units": REQUIRED, "out_dtype": ""}, "qnn.dense"),
    **_same(6, _TRANSPOSED, "qnn.batch_matmul"),
    **_same(8, _TWO_AXES, "qnn.add", "qnn.subtract", "qnn.mul"),
    **_same(5, {"axis": 0}, "qnn.concatenate"),
}
"""What is declared of each operator that is read."""
