"""MRT: trained float networks in, integer-only networks with a proof out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mrt.errors import MRTError
from mrt.version import __version__

if TYPE_CHECKING:
    from mrt import transform
    from mrt.api import prepare, quantize
    from mrt.calibration import CalibrationConfig
    from mrt.certificate import verify
    from mrt.compilation import TargetConfig, TuneConfig
    from mrt.frontend import batch_first, from_mxnet, from_onnx, from_openvino, from_tflite, load_model
    from mrt.frontend.relax import from_relax
    from mrt.frontend.relay import from_relay
    from mrt.frontend.torch import from_torch
    from mrt.model import QuantizedModel, load
    from mrt.preparation import PreparationConfig
    from mrt.quantization.options import QuantizationConfig
    from mrt.runtime import Module, load_module, open_device
    from mrt.search import tune
    from mrt.symbol import Graph, Symbol
    from mrt.symbol.states import with_states

_HOMES = {
    "CalibrationConfig": "mrt.calibration",
    "Graph": "mrt.symbol",
    "Module": "mrt.runtime",
    "PreparationConfig": "mrt.preparation",
    "QuantizationConfig": "mrt.quantization.options",
    "QuantizedModel": "mrt.model",
    "Symbol": "mrt.symbol",
    "TargetConfig": "mrt.compilation",
    "TuneConfig": "mrt.compilation",
    "batch_first": "mrt.frontend",
    "from_mxnet": "mrt.frontend",
    "from_onnx": "mrt.frontend",
    "from_openvino": "mrt.frontend",
    "from_relax": "mrt.frontend.relax",
    "from_relay": "mrt.frontend.relay",
    "from_tflite": "mrt.frontend",
    "from_torch": "mrt.frontend.torch",
    "load": "mrt.model",
    "load_model": "mrt.frontend",
    "load_module": "mrt.runtime",
    "open_device": "mrt.runtime",
    "prepare": "mrt.api",
    "quantize": "mrt.api",
    "transform": "mrt.transform",
    "tune": "mrt.search",
    "verify": "mrt.certificate",
    "with_states": "mrt.symbol.states",
}
"""Where each public name lives; imported on first use, so that `import mrt` loads no more than this, and the command
can be interrupted from its first moment."""


def __getattr__(name: str) -> Any:
    import importlib

    if name not in _HOMES:
        raise AttributeError(f"module 'mrt' has no attribute {name!r}")
    home = importlib.import_module(_HOMES[name])
    return home if name == "transform" else getattr(home, name)


__all__ = [
    "CalibrationConfig",
    "Graph",
    "MRTError",
    "Module",
    "PreparationConfig",
    "QuantizationConfig",
    "QuantizedModel",
    "Symbol",
    "TargetConfig",
    "TuneConfig",
    "__version__",
    "batch_first",
    "from_mxnet",
    "from_onnx",
    "from_openvino",
    "from_relax",
    "from_relay",
    "from_tflite",
    "from_torch",
    "load",
    "load_model",
    "load_module",
    "open_device",
    "prepare",
    "quantize",
    "transform",
    "tune",
    "verify",
    "with_states",
]
