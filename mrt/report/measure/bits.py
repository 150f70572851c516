"""The bits of layers: those that the configuration asks for, those that were chosen, and why."""

from __future__ import annotations

from mrt.quantization.simulation.rounded_graph import root_of
from mrt.report.facts import Bits
from mrt.report.layers import FloatLayer, weight_of
from mrt.report.measure.subject import Subject


def bits_of(layer: FloatLayer, subject: Subject) -> list[Bits]:
    """Of its output, and of its weight where it has one."""
    found = [_of_output(layer, subject)]
    if weight_of(layer, subject.graph) is not None:
        asked, chosen = (config.weight_of(layer.head.name).bits for config in (subject.asked, subject.chosen))
        general = subject.asked.weight.bits
        why = "as all weights" if asked == general else "quantize.overrides says so"
        found.append(Bits(what="weight", name=layer.head.name, asked=general, chosen=chosen, why=why))
    return found


def _of_output(layer: FloatLayer, subject: Subject) -> Bits:
    asked, chosen = subject.asked, subject.chosen
    if layer.head.is_variable and layer.head.name in chosen.inputs:
        entry = next(entry for entry in subject.model.inputs if entry.name == layer.head.name)
        width = max((entry.hi - entry.lo).bit_length(), 1)
        why = "its integers are given, as quantize.inputs says"
        return Bits(what="activation", name=layer.head.name, asked=None, chosen=width, why=why)
    name = root_of(layer.end).name
    width = chosen.activation_of(name).bits
    if asked.overrides_activation(name):
        why = "quantize.overrides says so"
    elif chosen.overrides_activation(name):
        told = next((note for note in subject.model.notes if note.startswith(f"{name} (")), "")
        why = f"more_bits: {asked.more_bits} gave it more{'; ' if told else ''}{told.partition('; ')[2]}"
    else:
        why = "as all activations"
    return Bits(what="activation", name=name, asked=asked.activation.bits, chosen=width, why=why)
