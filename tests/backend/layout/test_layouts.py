"""Tensors lie as their readers request: borders, rows, Concats in place."""

from __future__ import annotations

from layers import Layers

from mrt.backend.explain import explain
from mrt.symbol import Runner


def test_what_windows_give_is_read_along_rows(runner: Runner) -> None:
    """Channels are in the lanes of a convolution, whatever axis its only reader requests; a copy serves that one."""
    layers = Layers()
    for shape, filters, kernel, groups in [((1, 16, 5, 4), 19, (3, 3), 1), ((1, 9, 21), 9, (2,), 9)]:
        given = layers.requantized(layers.input(layers.integers(shape, "int16", -200, 200)))
        data = layers.requantized(layers.convolution(given, filters, kernel, num_group=groups))
        weight = layers.parameter_of((24, data.shape[-1]), "int8", -127, 127)
        layers.add("FullyConnected", data, weight, num_hidden=24, no_bias=True, flatten=False)
        data = layers.requantized(layers.convolution(given, 40, kernel), "int8")
        layers.add("batch_dot", data, data, transpose_b=True)
    layers.check(runner=runner)


def test_windows_over_one_channel_read_no_other() -> None:
    """Its padding in memory is shorter than that of what is made of it."""
    layers = Layers()
    given = layers.input(layers.integers((2, 1, 6, 16), "int8"))
    layers.add("Pooling", given, pool_type="sum", global_pool=True)
    layers.add("Pooling", given, pool_type="max", kernel=(5, 11))
    layers.finish(layers.convolution(layers.hidden("relu", given), 1, (6, 10)))
    layers.check()


def test_a_pad_has_its_border_wherever_its_data_lies() -> None:
    """Around what has rows last, and around the transpose of what has channels last for another reader."""
    layers = Layers()
    given = layers.requantized(layers.input(layers.integers((1, 16, 5, 20), "int16", -200, 200)))
    weight = layers.parameter_of((24, 20), "int8", -127, 127)
    attributes = {"num_hidden": 24, "no_bias": True, "flatten": False}
    rows = layers.requantized(layers.hidden("FullyConnected", given, weight, **attributes))
    layers.add("Pooling", layers.padded(rows, 2, 3, 2, 2), kernel=(2, 5), stride=(1, 3), pool_type="max")
    layers.finish(layers.convolution(layers.padded(rows, 1, 1, 1, 1), 8, (3, 3)))
    turned = layers.hidden("transpose", given, axes=(0, 3, 1, 2))
    layers.finish(layers.convolution(layers.padded(turned, 1, 2, 0, 1), 8, (3, 3)))
    layers.finish(layers.convolution(given, 8, (1, 1)))
    layers.check()


def test_concatenations_in_place(runner: Runner) -> None:
    """Parts of whole vectors, the last of any width; with borders, read by others too, and one of another Concat."""
    layers = Layers()
    data = layers.requantized(layers.input(layers.integers((3, 5, 9, 7), "int16", -200, 200)))
    squeezed = layers.requantized(layers.convolution(data, 16, (1, 1)))
    parts = [
        layers.requantized(layers.convolution(squeezed, 32, (1, 1))),
        layers.requantized(layers.convolution(layers.padded(squeezed, 1, 1, 1, 1), 16, (3, 3))),
        layers.requantized(layers.convolution(squeezed, 19, (1, 1))),
    ]
    joined = layers.hidden("Concat", *parts, dim=1)
    layers.finish(layers.convolution(layers.padded(joined, 1, 0, 1, 2), 16, (3, 3)))
    layers.finish(layers.convolution(joined, 33, (1, 1), pad=(1, 1)))
    layers.finish(layers.convolution(layers.padded(parts[1], 2, 2, 2, 2), 8, (3, 3)))
    again = layers.requantized(layers.convolution(joined, 16, (1, 1)))
    both = layers.hidden("Concat", again, joined, dim=1)
    layers.finish(layers.convolution(both, 16, (1, 1)))
    layers.add(
        "Pooling", layers.hidden("Concat", again, parts[0], dim=1), kernel=(3, 3), stride=(2, 2), pool_type="max"
    )
    layers.check(runner=runner)


def test_parts_of_a_concatenation_that_lie_by_rows_are_turned_first(runner: Runner, turn: int) -> None:
    """As interpolations are made, by products along the width: else a part is chosen for each element.

    Every other size on each CPU.
    """
    for channels, batch, copies in [(32, 1, 1), (24, 2, 1), (5, 1, 0)][turn % 2 :: 2]:
        layers = Layers()
        data = layers.requantized(layers.input(layers.integers((batch, channels, 6, 5), "int16", -200, 200)))
        by_channel = layers.requantized(layers.convolution(data, 32, (1, 1)))
        weight = layers.parameter_of((5, 5), "int8", -127, 127)
        by_row = layers.hidden("FullyConnected", data, weight, num_hidden=5, no_bias=True, flatten=False)
        joined = layers.hidden("Concat", by_channel, layers.requantized(by_row), dim=1)
        layers.finish(layers.convolution(layers.padded(joined, 1, 1, 1, 1), 16, (3, 3)))
        layers.check(runner=runner)
        made = [call.operators for call in explain(layers.graph(), []).calls]
        assert made[: made.index(("Concat",))][-1].count("copy") == copies


def test_why_a_concatenation_copies_is_told() -> None:
    def told(widths: tuple[int, ...]) -> list[str]:
        layers = Layers()
        data = layers.requantized(layers.input(layers.integers((1, 16, 5, 5), "int16", -200, 200)))
        parts = [layers.requantized(layers.convolution(data, width, (1, 1))) for width in widths]
        layers.finish(layers.convolution(layers.hidden("Concat", *parts, dim=1), 16, (1, 1)))
        return [call.ends for call in explain(layers.graph(), []).calls if "Concat" in call.operators]

    assert told((32, 16, 5)) == []
    (reason,) = told((20, 16))
    assert "has 20 channels" in reason


def test_a_border_of_several_readers_is_the_widest() -> None:
    """One pads by 1, one by 2, one has a pad of its own, one reads the tensor as it is, one pads with another value."""
    layers = Layers()
    data = layers.requantized(layers.input(layers.integers((1, 16, 8, 8), "int16", -200, 200)), "int8")
    for read, attributes in [
        (layers.padded(data, 1, 1, 1, 1), {}),
        (layers.padded(data, 2, 0, 1, 2), {}),
        (data, {"pad": (1, 2)}),
        (data, {}),
        (layers.padded(data, 1, 1, 1, 1, value=5), {}),
    ]:
        layers.finish(layers.convolution(read, 16, (3, 3), **attributes))
    layers.finish(data)
    layers.check()


def test_what_is_computed_row_by_row_has_whole_rows(runner: Runner) -> None:
    """A transpose in front of a softmax is stored, with rows of whole vectors, where channels would lie between."""
    layers = Layers()
    given = layers.requantized(layers.input(layers.integers((1, 20, 24, 4), "int16", -200, 200)), "int8")
    weight = layers.parameter_of((4, 4), "int8", -127, 127)
    mixed = layers.hidden("FullyConnected", given, weight, num_hidden=4, no_bias=True, flatten=False)
    heads = layers.hidden("transpose", layers.requantized(mixed, "int8"), axes=(0, 3, 1, 2))
    highest = layers.hidden("max", heads, axis=(-1,), keepdims=True)
    below = layers.hidden("broadcast_sub", highest, heads)
    total = layers.hidden("sum", below, axis=(-1,), keepdims=True)
    layers.finish(layers.requantized(layers.hidden("broadcast_add", below, total)))
    layers.check(runner=runner)
    (moved,) = [call for call in explain(layers.graph(), []).calls if "transpose" in call.operators]
    assert moved.memory == ("int8[80, 32] (axis 3 last)",)
