"""Quantization as a TVM module pass: a float Relax module in, an integer one out."""

from __future__ import annotations

from mrt import tvm_errors as _tvm_errors
from mrt.api import Batches, quantize
from mrt.calibration import CalibrationConfig
from mrt.compilation import Target
from mrt.frontend.relax import from_relax
from mrt.lean_tvm import tvm
from mrt.preparation import PreparationConfig
from mrt.quantization.options import QuantizationConfig

del _tvm_errors


def Quantize(  # noqa: N802  (module passes are named like classes)
    batches: Batches,
    quantization: QuantizationConfig | None = None,
    calibration: CalibrationConfig | None = None,
    preparation: PreparationConfig | None = None,
    target: Target | None = None,
) -> tvm.transform.Pass:
    """A `tvm.transform` module pass that is `mrt.quantize(from_relax(mod), ...).to_relax(target)`.

    batches must be re-iterable (a list, say) if the pass is run more than once, or with sequential bias correction.
    A float tail that preparation cuts off is no part of the integer module: set `preparation.cut_softmax` to False to
    have it refused instead.
    Running it raises what `mrt.quantize` raises.
    """

    def run(module: tvm.IRModule, context: tvm.transform.PassContext) -> tvm.IRModule:
        return quantize(from_relax(module), batches, quantization, calibration, preparation).to_relax(target)

    return tvm.transform.module_pass(run, opt_level=0, name="mrt.Quantize")
