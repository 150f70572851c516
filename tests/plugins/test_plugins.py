"""Packages of the entry points `mrt.plugins`: when they are loaded, and what is said where one fails."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import networks
import pytest
from children import child_environment


def install(site: Path, package: str, points: str, module: str) -> None:
    """Puts a package of one module and its metadata into a folder."""
    metadata = site / f"{package}-1.0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(f"[mrt.plugins]\n{points}\n")
    (site / f"{package}.py").write_text(module)


def printed(code: str, site: Path, *arguments: str | Path) -> list[str]:
    """The lines that Python prints where the packages of a folder are installed."""
    command = [sys.executable, "-c", code, *map(str, arguments)]
    done = subprocess.run(command, env=child_environment(site), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


RECORD = """
from mrt.symbol import Operator, operator
print("imported")
@operator("acme_same")
class Same(Operator):
    pass
def register():
    print("called")
"""

ASKED = """
import sys
from mrt.errors import PluginError
from mrt.plugins import load_plugins
for part in sys.argv[1:]:
    try:
        load_plugins(part)
    except PluginError as error:
        print(error)
"""


def test_each_part_is_loaded_once_when_it_is_asked_for(tmp_path: Path) -> None:
    install(tmp_path, "same", "operators = same\nconverters.onnx = same:register", RECORD)
    assert printed(ASKED, tmp_path, "computes") == []
    assert printed(ASKED, tmp_path, "operators", "operators") == ["imported"]
    assert printed(ASKED, tmp_path, "operators", "converters.onnx", "converters.onnx") == ["imported", "called"]
    assert printed(ASKED, tmp_path, "converters.onnx", "converters.tflite") == ["imported", "called"]


SLOW = """
import time
time.sleep(0.5)
done = True
"""

THREADS = """
import sys, threading
from mrt.plugins import load_plugins
found = []
def ask():
    load_plugins("operators")
    found.append(hasattr(sys.modules["slow"], "done"))
threads = [threading.Thread(target=ask) for _ in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(found)
"""


def test_every_thread_waits_until_a_part_is_loaded(tmp_path: Path) -> None:
    install(tmp_path, "slow", "operators = slow", SLOW)
    assert printed(THREADS, tmp_path) == ["[True, True, True, True]"]


FAILING = [
    ("operators = broken", "import no_such_module", "ModuleNotFoundError: No module named 'no_such_module'"),
    ("operators = absent", "", "ModuleNotFoundError: No module named 'absent'"),
    ("operators = broken:part", "", "AttributeError: module 'broken' has no attribute 'part'"),
    ("operators = broken:part", "part = 3", "is of type int; a module, or a function without arguments, is needed"),
    ("operators = broken:part", "def part(): raise OSError('no disk')", "fails: OSError: no disk; update or uninstall"),
    ("operators = broken", RECORD.replace("acme_same", "relu"), "GraphError: operator relu is registered twice"),
    ("operator = broken", "", "is called operator; operators, formats, "),
    ("converters.onyx = broken", "", "is called converters.onyx; operators, "),
]


@pytest.mark.parametrize(("points", "module", "reason"), FAILING)
def test_a_package_that_fails_is_named_each_time(tmp_path: Path, points: str, module: str, reason: str) -> None:
    """And nothing is registered a second time where it is tried again."""
    install(tmp_path, "broken", points, module)
    first, second = (line for line in printed(ASKED, tmp_path, "operators", "operators") if line != "imported")
    assert first == second
    assert first.startswith(f"package broken: its entry point `{points}` of mrt.plugins ") and reason in first


TOY = """
from mrt.frontend.formats import add_format
from mrt.frontend.shared.format import Format
from mrt.symbol import GraphBuilder, TensorType, find_operator

def read(path, batch, shapes):
    builder = GraphBuilder()
    symbol = builder.input("x", TensorType((batch, int(path.read_text().split()[1]))))
    return builder.graph([builder.apply(find_operator("relu")(), [symbol], "y")])

def add():
    add_format(Format("toy", None, lambda start: start.startswith(b"{toy"), read, "a toy"))
"""

READ = """
import sys, mrt
for path in sys.argv[1:]:
    try:
        print(mrt.load_model(path, batch=2).outputs[0])
    except mrt.MRTError as error:
        print(error)
"""


def test_a_format_of_a_package_is_read_and_tried_before_those_of_mrt(tmp_path: Path) -> None:
    """Whose reader takes every file that begins with a brace for MXNet's."""
    install(tmp_path, "toy", "formats = toy:add", TOY)
    (tmp_path / "net").write_text("{toy 3")
    (tmp_path / "other").write_text("text")
    read, refused = printed(READ, tmp_path, tmp_path / "net", tmp_path / "other")
    assert read == "<y (relu) float32[2, 3]>"
    assert "other is no model that is read: a toy, " in refused
    (without,) = printed(READ, tmp_path / "nowhere", tmp_path / "net")
    assert "symbol file" in without


def test_a_reader_says_which_package_fails(tmp_path: Path) -> None:
    install(tmp_path, "broken", "converters.onnx = broken", "1 / 0")
    networks.save_network(tmp_path / "net.onnx")
    assert printed(READ, tmp_path, tmp_path / "net.onnx") == [
        "package broken: its entry point `converters.onnx = broken` of mrt.plugins fails: "
        "ZeroDivisionError: division by zero; update or uninstall the package"
    ]
