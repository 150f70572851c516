"""Notes for developers stay out of a model's page, counts agree with their nouns, and times are the module's."""

from __future__ import annotations

from mrt.messages import counted
from mrt.model_page import model_page
from mrt.report.recompiled import without_times
from mrt.symbol import GraphBuilder, TensorType, find_operator
from tests.made_reports import made_report, names

INTERNAL = ["simplified by drop relu: a", "a (Convolution): 12 bits; rounded alone to 8 it leaves 30.0 dB"]


def page_of(notes: list[str]) -> str:
    builder = GraphBuilder()
    graph = builder.graph([builder.apply(find_operator("relu")(), [builder.input("x", TensorType((1, 2)))], "y")])
    return model_page(graph, [], [], None, {}, notes, [])


def test_the_page_of_a_model_shows_the_notes_for_its_users() -> None:
    page = page_of([*INTERNAL, "the range of x is given", *INTERNAL])
    assert "note: the range of x is given" in page and "… 4 more in .notes" in page
    assert not any(note in page for note in INTERNAL)
    assert "2 notes in .notes" in page_of(INTERNAL) and ".notes" not in page_of([])


def test_a_count_of_one_has_a_singular() -> None:
    assert [counted(count, "tensor") for count in (0, 1, 2)] == ["0 tensors", "1 tensor", "2 tensors"]
    assert "1 integer operator," in page_of([])


def test_a_module_compiled_anew_has_none_of_the_times_before() -> None:
    report = made_report(names(3))
    assert report.latency is not None and any(layer.seconds for layer in report.layers)
    bare = without_times(report, ("the range of x is given",), 4321)
    assert bare.latency is None and bare.time is None and bare.sizes.module == 4321
    assert all(layer.seconds is None and layer.time_share is None for layer in bare.layers)
    assert "compiled anew" in bare.missing["latency"] and "compiled anew" in bare.missing["time"]
    assert not any("of the time" in note.title for note in bare.notes)
    assert [layer.shares for layer in bare.layers] == [layer.shares for layer in report.layers]
