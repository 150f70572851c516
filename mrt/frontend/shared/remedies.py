"""What to do about operators that are not covered, where something is known to work: one table for all formats."""

from __future__ import annotations

from collections.abc import Iterable

_DYNAMIC = "its scales depend on the data of each run: give the model as it was before dynamic quantization"
_SPECTRUM = "compute the spectrum outside and make it the input"
_RANDOM = "make the noise an input of the model: the same inputs must give the same outputs"
_LISTS = "export without lists of tensors"
_DATA_SIZE = "a size depends on the data, as that of x[mask] does; end the model before it, or keep all elements"
_DATA_SHAPE = "the shape of its result depends on the data; end the model before it"

_REMEDIES = {
    **dict.fromkeys(("DynamicQuantizeLinear", "DynamicQuantizeLSTM", "DynamicQuantizeMatMul"), _DYNAMIC),
    **dict.fromkeys(("MatMulIntegerToFloat", "com.microsoft.DynamicQuantizeLSTM"), _DYNAMIC),
    **dict.fromkeys(("com.microsoft.DynamicQuantizeMatMul", "com.microsoft.MatMulIntegerToFloat"), _DYNAMIC),
    **dict.fromkeys(("MelWeightMatrix", "RFFT2D"), _SPECTRUM),
    **dict.fromkeys(("RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"), _RANDOM),
    **dict.fromkeys(("Multinomial", "Bernoulli", "RANDOM_UNIFORM", "RANDOM_STANDARD_NORMAL"), _RANDOM),
    **dict.fromkeys(("SequenceConstruct", "SequenceEmpty", "SequenceInsert", "SequenceAt"), _LISTS),
    **dict.fromkeys(("SplitToSequence", "ConcatFromSequence", "SequenceLength", "SequenceErase"), _LISTS),
    **dict.fromkeys(("NonZero", "Unique", "Compress", "UNIQUE", "WHERE", "aten.nonzero.default"), _DATA_SHAPE),
    **dict.fromkeys(("aten._assert_scalar.default", "aten.item.default", "aten.sym_size.int"), _DATA_SIZE),
    "If": "give the input that decides it a value (model.values), so that one branch is left",
    "Loop": "export with a fixed number of steps, unrolled",
    "Scan": "export with a fixed number of steps, unrolled",
    "WHILE": "convert with a fixed number of steps, unrolled (Keras: unroll=True in the recurrent layer)",
    **dict.fromkeys(("LSTM", "RNN", "SVDF"), "its state outlives a run: convert a layer over a sequence instead"),
}
"""By the operator's name in its format."""


def remedies(operators: Iterable[str]) -> list[str]:
    """What is known of these operators, each sentence once, with the operators that it is of.

    More words may follow an operator's name.
    """
    found: dict[str, list[str]] = {}
    for operator in operators:
        remedy = _REMEDIES.get(operator.split(" ", 1)[0])
        if remedy is not None:
            found.setdefault(remedy, []).append(operator)
    return [f"{', '.join(names)}: {remedy}" for remedy, names in found.items()]
