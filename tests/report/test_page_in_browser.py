"""The page of a report as Chromium shows it: it asks for nothing, complains of nothing, overflows nowhere."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from mrt.report.page.compare import compare_html
from mrt.report.page.comparison import compared
from mrt.report.page.page import report_html
from tests.browser import Browser, find_chromium
from tests.made_reports import HOSTILE, made_report, names

pytestmark = pytest.mark.skipif(find_chromium() is None, reason="needs Chromium (Debian: apt install chromium)")

LONG = "/model/" + "encoder.layers.11.self_attention.output_projection/" * 8
UNFIT = """[...document.querySelectorAll("body *")].filter((e) => {
  const box = e.getBoundingClientRect();
  return box.width && box.right > innerWidth + 1 && !e.closest(".scroll, pre, .skip");
}).map((e) => `${e.tagName}#${e.id}.${e.className.baseVal ?? e.className}`)"""
"""Elements that reach beyond the window, but for those in boxes that scroll."""
UNDRAWN = """[...document.querySelectorAll("svg *")].filter((e) =>
  [...e.attributes].some((a) => /NaN|undefined|Infinity/.test(a.value)) || /NaN|undefined/.test(e.textContent)
).map((e) => e.outerHTML.slice(0, 200))"""
"""Parts of charts at a place that is no number."""


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    program = find_chromium()
    assert program is not None
    driven = Browser(program, tmp_path_factory.mktemp("profile"))
    yield driven
    driven.close()


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("report") / "report.html"
    layers = [*names(40), HOSTILE, LONG]
    path.write_text(report_html(made_report(layers)))
    return path


def check(browser: Browser, path: Path) -> None:
    assert browser.problems == []
    assert browser.requests == [path.as_uri()]
    assert browser.run(UNFIT) == []
    assert browser.run(UNDRAWN) == []
    assert browser.run("document.documentElement.scrollWidth <= innerWidth")


@pytest.mark.parametrize(("width", "dark"), [(1280, False), (1280, True), (420, False)])
def test_it_asks_for_nothing_and_fits(browser: Browser, page: Path, width: int, dark: bool) -> None:
    browser.open(page, width=width, dark=dark)
    check(browser, page)
    background = browser.run("getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, background[4:-1].split(","))) < 200) == dark
    for name in ("sqnr", "strip", "hist", "chan", "err", "levels", "weights", "pareto"):
        drawn = browser.run(f"document.querySelectorAll('#{name} svg path').length")
        assert drawn or (name == "levels" and browser.run("document.getElementById('levels').closest('figure').hidden"))


def test_foreign_names_are_text(browser: Browser, page: Path) -> None:
    browser.open(page)
    browser.run("document.querySelector('.link[data-layer=\"40\"]').click()")
    browser.wait()
    assert browser.run("document.getElementById('layer-name').textContent") == HOSTILE
    assert browser.run("window.hacked === undefined && document.images.length === 0")
    check(browser, page)


def test_a_click_chooses_a_layer_everywhere(browser: Browser, page: Path) -> None:
    browser.open(page)
    shown = "document.getElementById('layer-name').textContent"
    second = browser.run("document.querySelectorAll('.fall[data-layer]')[1].querySelector('.n').title")
    assert browser.run(shown) != second
    browser.click(".fall[data-layer]:nth-of-type(2)")
    assert browser.run(shown) == second
    assert browser.run("document.querySelector('.fall[aria-pressed=\"true\"] .n').title") == second
    assert browser.run("document.querySelector('#all tr.on .link').title") == second
    browser.run("document.getElementById('sqnr').focus()")
    browser.send("Input.dispatchKeyEvent", type="keyDown", key="ArrowLeft")
    assert browser.run(shown) != second
    check(browser, page)


def test_a_link_opens_a_layer(browser: Browser, page: Path) -> None:
    browser.open(page, "#layer7")
    assert browser.run("document.getElementById('layer-name').textContent") == "layer7"


def test_the_table_sorts_and_is_searched(browser: Browser, page: Path) -> None:
    browser.open(page)
    cells = "[...document.querySelectorAll('#all tbody tr')].map((r) => +r.cells[4].textContent.replace('−', '-'))"
    browser.click("#all button[data-key=share]")
    found = browser.run(cells)
    assert found == sorted(found, reverse=True) and len(found) == 42
    browser.click("#all button[data-key=share]")
    assert browser.run(cells) == sorted(found)
    browser.run("const f = document.getElementById('find'); f.value = 'layer39'; f.dispatchEvent(new Event('input'))")
    shown = "[...document.querySelectorAll('#all tbody tr')].filter((r) => !r.hidden).length"
    assert browser.run(shown) == 1


def test_folded_rows_are_shown_and_hidden(browser: Browser, page: Path) -> None:
    browser.open(page)
    hidden = "document.querySelectorAll('.falls .more[hidden]').length"
    assert browser.run(hidden) == 42 - 16
    browser.click("#rest")
    assert browser.run(hidden) == 0
    browser.click("#rest")
    assert browser.run(hidden) == 42 - 16


@pytest.mark.parametrize("count", [0, 1, 2])
def test_small_networks(browser: Browser, tmp_path: Path, count: int) -> None:
    path = tmp_path / "report.html"
    path.write_text(report_html(made_report(names(count), channels=1)))
    browser.open(path)
    check(browser, path)


def test_what_was_not_measured_leaves_no_hole(browser: Browser, tmp_path: Path) -> None:
    whole = made_report(names(4))
    bare = [
        layer.model_copy(
            update=dict.fromkeys(("form", "shares", "sqnr", "values", "weights", "seconds", "rescaling", "advice"))
        )
        for layer in whole.layers
    ]
    parts = dict.fromkeys(("accuracy", "outputs", "error", "latency", "time", "trials"))
    path = tmp_path / "report.html"
    path.write_text(report_html(whole.model_copy(update=parts | {"layers": bare, "notes": [], "settings": {}})))
    browser.open(path, width=420)
    check(browser, path)


def test_paper_has_light_colours_and_all_that_fits(browser: Browser, page: Path) -> None:
    browser.open(page, width=718, dark=True)
    colors = [{"name": "prefers-color-scheme", "value": "dark"}]
    browser.send("Emulation.setEmulatedMedia", media="print", features=colors)
    assert browser.run("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert browser.run("[...document.querySelectorAll('.quiet, #find')].every((e) => !e.getClientRects().length)")
    assert browser.paper().startswith(b"%PDF")
    assert browser.problems == []


@pytest.mark.parametrize("width", [1280, 420])
def test_two_runs_side_by_side(browser: Browser, tmp_path: Path, width: int) -> None:
    path = tmp_path / "compare.html"
    first, second = made_report([*names(30), HOSTILE, LONG]), made_report([*names(31), HOSTILE, LONG])
    path.write_text(compare_html(compared(first, second, (HOSTILE, LONG))))
    browser.open(path, width=width)
    check(browser, path)
    assert browser.run("document.querySelectorAll('#sqnr svg path').length") >= 4
    browser.click("#all button[data-key=change]")
    check(browser, path)
