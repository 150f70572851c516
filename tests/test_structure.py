"""The structure of the sources: imports point down and in no circle, files and functions are short, records are asked.

The order of the packages is data, and so are the exceptions, each with its reason: one that is not needed any more is
an error too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

import pytest

from mrt.collector import paused_collector
from tests.structure import (
    ROOT,
    Source,
    arrows,
    asks_for_records,
    circles,
    compares_names,
    is_in,
    long_functions,
    sources,
    upward,
    within,
)

MOST_LINES, MOST_LINES_OF_A_FUNCTION = 400, 40

ORDER = (
    "mrt.__main__",
    "mrt.cli",
    "mrt",
    "mrt.search",
    "mrt.transform mrt.pipeline",
    "mrt.api mrt.stages",
    "mrt.steps",
    "mrt.work",
    "mrt.model_evaluation mrt.batches",
    "mrt.report",
    "mrt.model mrt.datasets mrt.workspace",
    "mrt.scoring mrt.model_page",
    "mrt.model_exports mrt.config",
    "mrt.export",
    "mrt.backend",
    "mrt.runtime mrt.certificate expansions",
    "mrt.quantization mrt.module_record",
    "mrt.frontend mrt.preparation mrt.calibration mrt.simplification mrt.result_folder mrt.compilation",
    "mrt.samples mrt.evaluation",
    "mrt.execution",
    "mrt.symbol mrt.algorithm_registry mrt.options mrt.paths mrt.progress mrt.device_address mrt.tvm_errors",
    "mrt.messages mrt.plugins mrt.workers mrt.blas mrt.lean_tvm mrt.cpu_flags",
    "mrt.errors mrt.version mrt.collector",
)
"""The packages from top to bottom: each knows those of later lines only, docs/architecture.md."""
BACKEND = (
    "mrt.backend",
    "mrt.backend.runner mrt.backend.portable mrt.backend.explain mrt.backend.profile mrt.backend.native "
    "mrt.backend.devices",
    "mrt.backend.build mrt.backend.memory_plan",
    "mrt.backend.kept_modules",
    "mrt.backend.tuning mrt.backend.lowering mrt.backend.job",
    "mrt.backend.link mrt.backend.rewrites mrt.backend.computes mrt.backend.batches mrt.backend.peak",
    "mrt.backend.kernels",
    "mrt.backend.schedule mrt.backend.layout",
    "mrt.backend.fusion",
    "mrt.backend.te",
    "mrt.backend.memory",
    "mrt.backend.tir mrt.backend.operators mrt.backend.machine",
)
"""The rooms of the back end from top to bottom."""
QUANTIZATION = tuple(
    " ".join(f"mrt.quantization.{name}".rstrip(".") for name in line.split(" "))
    for line in (
        " algorithms",
        "algorithms.built_in",
        "algorithms.needs algorithms.sensitive_tensors algorithms.selected_bias_correction presets",
        "algorithms.equalize algorithms.smooth",
        "equalization",
        "simulation",
        "algorithms.fast_bias_correction algorithms.sequential_bias_correction",
        "algorithms.bias_correction algorithms.moments",
        "expand",
        "algorithms.channel_choice",
        "plan",
        "expansion",
        "integer tensor_plan demand integer_inputs names",
        "algorithms.gptq_rounding",
        "algorithms.least_error_rounding",
        "algorithms.nearest_rounding algorithms.max_range algorithms.percentile_range algorithms.historical_range "
        "algorithms.least_error_range algorithms.integer_least_squares algorithms.layer_memory",
        "algorithms.algorithm",
        "constant_grids options granularity cost exact_integers",
        "quantizer remedies",
    )
)
"""Quantization from top to bottom: of the algorithms some run an expansion, and some serve one."""
FRONTEND = (
    "mrt.frontend.anything",
    "mrt.frontend",
    "mrt.frontend.formats",
    "mrt.frontend.onnx mrt.frontend.mxnet mrt.frontend.openvino mrt.frontend.tflite "
    "mrt.frontend.relay mrt.frontend.torch",
    "mrt.frontend.relax",
    "mrt.frontend.tvm",
    "mrt.frontend.shared",
)
"""The formats, of which none but PyTorch is read by way of another, and what they share."""
KNOWN_ALONE = {
    "mrt.symbol": "mrt.plugins mrt.messages mrt.errors",
    "mrt.simplification": "mrt.symbol mrt.errors",
    "expansions": "mrt.quantization mrt.calibration mrt.symbol mrt.errors",
}
"""Packages, and all that they may import of MRT."""
UPWARD: dict[str, str] = {}
"""Arrows that point up, and why."""
CIRCLES: dict[str, str] = {}
"""Modules in a circle, their names sorted and joined by spaces, and why."""
LONG_FILES: dict[str, str] = {}
LONG_FUNCTIONS: dict[str, str] = {}
"""`path::function`, and why."""
COMPARED_NAMES = {
    "mrt/frontend/mxnet/symbols.py": "a node of MXNet's JSON, whose names are those of the file",
    "mrt/frontend/torch/folding.py": "the kind of a torch.fx node",
    "mrt/frontend/torch/program.py": "the kind of a torch.fx node",
    "mrt/frontend/torch/reader.py": "the kind of a torch.fx node",
}
"""Files that compare a field `op`, and why."""
RECORDS = {
    "a pass that rewrites a pattern of operators says which": """
        mrt/preparation/average_pooling.py mrt/preparation/channels.py mrt/preparation/collapse_to_table.py
        mrt/preparation/constants.py mrt/preparation/cut_tail.py mrt/preparation/drop_border_taps.py
        mrt/preparation/drop_identities.py mrt/preparation/nan_guards.py
        mrt/preparation/fold_batch_norm.py mrt/preparation/patterns/__init__.py mrt/preparation/patterns/algebra.py
        mrt/preparation/patterns/gates.py mrt/preparation/patterns/moments.py mrt/preparation/patterns/quotients.py
        mrt/preparation/patterns/softmax.py mrt/preparation/quantized_constants.py
        mrt/preparation/scalars_to_constants.py mrt/preparation/separate_pad.py mrt/preparation/zero_points.py
        mrt/frontend/shared/batch_first.py mrt/frontend/shared/channels_first.py
        mrt/frontend/shared/quantized.py mrt/frontend/tvm/bias.py
        mrt/frontend/tflite/dilation.py mrt/backend/rewrites/data_in_bytes.py
        mrt/backend/rewrites/bias_into_sum.py mrt/backend/rewrites/clip_before_scaling.py
        mrt/backend/rewrites/clip_limits_as_parameters.py mrt/backend/rewrites/interleave_channels.py
        mrt/backend/rewrites/known_bounds.py mrt/backend/rewrites/merge_row_slices.py
        mrt/backend/rewrites/merge_slices.py mrt/backend/rewrites/merge_reshapes.py
        mrt/backend/rewrites/phases_joined_last.py mrt/backend/rewrites/proven_constants.py
        mrt/backend/rewrites/narrow_before_moving.py mrt/backend/rewrites/narrow_to_int16.py
        mrt/backend/rewrites/int16_operands.py mrt/backend/rewrites/slices_by_begin.py
        mrt/backend/rewrites/tile_as_concat.py mrt/backend/rewrites/times_ramp_of_itself.py
        mrt/backend/rewrites/tokens_of_maps.py mrt/backend/rewrites/turned_operands.py
        mrt/backend/rewrites/widen_clips.py
        mrt/export/onnx/node.py mrt/simplification/integer.py""",
    "what scales the rows of a weight asks for a layer, which has them": "mrt/quantization/equalization/layers.py",
    "a normalization is spelled out by a root": "mrt/quantization/presets.py",
    "what a network masks is seen by the operators in front of a softmax": "mrt/quantization/plan/attention_masks.py",
    "a network that was quantized in training is told by its quantizers": """
        mrt/quantization/constant_grids.py mrt/quantization/plan/rounded_anew.py
        mrt/quantization/plan/trained.py""",
    "a cast of integers makes none, so that it is no arithmetic": "mrt/quantization/exact_integers.py",
    "a converter of a foreign operator that is one of several here looks at which it made": """
        mrt/frontend/shared/picking.py
        mrt/frontend/mxnet/converters/reduce.py mrt/frontend/mxnet/converters/transform.py
        mrt/frontend/mxnet/converters/windows.py mrt/frontend/tvm/elementwise.py""",
}
"""Reasons to ask whether an operator is of a record, and the files that have them."""


@pytest.fixture(scope="module", autouse=True)
def read_once() -> Iterator[None]:
    """What was read of the files stays for these tests alone: a million objects, which no collector goes through."""
    with paused_collector():
        yield
        imported.cache_clear()
        files.cache_clear()


@cache
def files() -> tuple[Source, ...]:
    return tuple(sources("mrt", "expansions"))


def outside() -> list[Source]:
    """Those beside `mrt.symbol`, where the records are."""
    return [file for file in files() if not is_in(file.module, "mrt.symbol")]


@cache
def imported() -> Mapping[str, set[str]]:
    """The arrows of all files, which are read when a test asks for them."""
    return arrows(files())


def check(found: set[str], excused: Mapping[str, str], rule: str) -> None:
    new, gone = sorted(found - set(excused)), sorted(set(excused) - found)
    assert not new, f"{rule}:\n  " + "\n  ".join(new)
    assert not gone, "no exception is needed any more:\n  " + "\n  ".join(gone)
    assert all(excused.values()), "an exception needs its reason"


def test_imports_point_down() -> None:
    found = upward(imported(), ORDER)
    for package, rooms in {"mrt.backend": BACKEND, "mrt.frontend": FRONTEND, "mrt.quantization": QUANTIZATION}.items():
        found |= upward(within(imported(), package), rooms)
    check(found, UPWARD, "these imports point up, or to a neighbour")


@pytest.mark.parametrize("package", KNOWN_ALONE)
def test_packages_that_stand_alone(package: str) -> None:
    known = [package, *KNOWN_ALONE[package].split()]
    for module, targets in imported().items():
        foreign = {t for t in targets if not any(is_in(t, name) for name in known)}
        assert not is_in(module, package) or not foreign, f"{module} imports {sorted(foreign)}; {known} are allowed"


def test_no_circle_of_imports() -> None:
    check({" ".join(circle) for circle in circles(imported())}, CIRCLES, "these modules import each other")


def test_files_are_short() -> None:
    others = sources("tests", "benchmarks", "examples")
    found = {file.path for file in (*files(), *others) if len(file.text.splitlines()) > MOST_LINES}
    check(found, LONG_FILES, f"these files have more than {MOST_LINES} lines")


def test_functions_are_short() -> None:
    found = {name for file in files() for name in long_functions(file, MOST_LINES_OF_A_FUNCTION)}
    check(found, LONG_FUNCTIONS, f"these functions have more than {MOST_LINES_OF_A_FUNCTION} lines")


def test_files_beside_tests_have_names_of_their_own() -> None:
    """Those of folders that are no packages are imported by their name alone, the first of a name for all."""
    names = [path.stem for path in (ROOT / "tests").rglob("*.py") if not (path.parent / "__init__.py").exists()]
    assert {name for name in names if names.count(name) > 1} <= {"conftest"}


def test_no_name_of_an_operator_is_compared() -> None:
    """Facts of operators are those of their records."""
    check({file.path for file in outside() if compares_names(file)}, COMPARED_NAMES, "these files compare names")


def test_records_are_not_asked_for_without_a_reason() -> None:
    excused = {path: reason for reason, paths in RECORDS.items() for path in paths.split()}
    assert sum(len(paths.split()) for paths in RECORDS.values()) == len(excused), "a file has one reason"
    check({file.path for file in outside() if asks_for_records(file)}, excused, "these files ask for records")


# The reading itself


def written(root: Path, files: Mapping[str, str]) -> list[Source]:
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    return sources("p", root=root)


def test_every_kind_of_import_is_an_arrow(tmp_path: Path) -> None:
    files = {
        "p/__init__.py": "from . import a",
        "p/a.py": "import p.b\nif TYPE_CHECKING:\n    from p.q.c import C",
        "p/b.py": "def f():\n    from .q import c, nothing\nimport os",
        "p/q/__init__.py": "",
        "p/q/c.py": "from ..a import value",
    }
    found = arrows(written(tmp_path, files))
    assert found == {
        "p": {"p", "p.a"} - {"p"},
        "p.a": {"p.b", "p.q.c"},
        "p.b": {"p.q", "p.q.c"},
        "p.q": set(),
        "p.q.c": {"p.a"},
    }
    assert circles(found) == [["p.a", "p.b", "p.q.c"]]
    assert upward(found, ("p", "p.a", "p.b p.q")) == {"p.b → p.q", "p.b → p.q.c", "p.q.c → p.a"}
    with pytest.raises(KeyError, match="p.q"):
        upward(found, ("p", "p.a", "p.b"))


@pytest.mark.parametrize(
    ("text", "compares", "asks"),
    [
        ('s.op == "relu"', True, False),
        ('s.op in ("relu", "tanh")', True, False),
        ("NAME == s.op", True, False),
        ('s.name == "relu"', False, False),
        ("isinstance(s.operator, Relu)", False, True),
        ("from mrt.symbol.operators.activation import Relu\nisinstance(op, (int, Relu))", False, True),
        ("from mrt.symbol.operators.activation import Relu\nisinstance(op, int), Relu", False, False),
    ],
)
def test_questions_are_seen(tmp_path: Path, text: str, compares: bool, asks: bool) -> None:
    (file,) = written(tmp_path, {"p/a.py": text})
    assert (compares_names(file), asks_for_records(file)) == (compares, asks)


def test_functions_are_measured_without_their_docstring(tmp_path: Path) -> None:
    docstring = '"""One.\n\n        Two.\n        """'
    text = f"class A:\n    def f(self):\n        {docstring}\n        def g():\n            pass\n        return g\n"
    (file,) = written(tmp_path, {"p/a.py": text})
    assert long_functions(file, 3) == ["p/a.py::A.f"]
    assert long_functions(file, 1) == ["p/a.py::A.f", "p/a.py::A.f.g"]
    assert long_functions(file, 4) == []


def test_the_order_names_what_exists() -> None:
    for name in (name for line in (*ORDER, *BACKEND, *FRONTEND) for name in line.split()):
        path = ROOT / name.replace(".", "/")
        assert path.is_dir() or path.with_suffix(".py").is_file(), f"{name} is in the order and does not exist"
