"""What to do where a program has operators that are not covered, by what these are."""

from __future__ import annotations

from collections.abc import Iterable

_COMPUTED_SCALES = ("choose_qparams", "choose_scale", "per_token")
_WRITES = "index_put"
_SUBCLASSES = "access_subclass_inner_tensor"


def advice_on(operators: Iterable[str]) -> str:
    """The end of an error that lists these operators."""
    found = list(operators)
    advice = []
    if any(part in operator for operator in found for part in _COMPUTED_SCALES):
        advice.append(
            "scales that are computed while the network runs have no form in integers: quantize activations "
            "statically (prepare_pt2e and convert_pt2e of a quantizer that is not dynamic), or weights alone "
            "(Int8WeightOnlyConfig)"
        )
    if any(_SUBCLASSES in operator for operator in found):
        advice.append("save program.run_decompositions({}), in which quantized weights are plain tensors")
    if any(_WRITES in operator for operator in found):
        advice.append(
            "what is written at a computed place of a tensor can be chosen instead: torch.where(mask, new, cache), "
            "with the mask, such as a one-hot of the place, an input"
        )
    return "; ".join(advice) or "replace them before exporting, or cut the model before them"
