"""The configuration file: what is right is taken as written, what is wrong is named with its line and a remedy."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mrt.compilation import TargetConfig, TuneConfig
from mrt.config import FolderDataset, LoaderDataset, NpzDataset, RunConfig, load_config
from mrt.errors import ConfigError

FULL = """\
model: {path: "${MODELS}/net.onnx"}
data:
  calibration: {npz: data/train.npz, x: images, slice: [0, 8], layout: "NHWC -> NCHW", mean: [1, 2, 3], std: 2}
  test: {loader: "load.py:load", args: {name: net}, split: test, samples: 5}
prepare: {split: [head*]}
calibrate: {method: historical, lambda: 10}
quantize:
  activation: {bits: 7}
  weight: {bits: 6, scales: layer}
  overrides:
    conv.1: {activation: {bits: 4}}
compile: {target: {kind: llvm, mcpu: x86-64-v2, features: [avx2, -sse3], threads: 2}, batch: 4, tune: {trials: 8}}
evaluate: {samples: 100, check: 3}
output: out/net
"""


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Writes a configuration file and gives its path."""
    monkeypatch.setenv("MODELS", "models")
    monkeypatch.chdir(tmp_path)

    def write(text: str) -> Path:
        path = tmp_path / "config.yaml"
        path.write_text(text)
        return path

    return write


def error_of(path: Path, *overrides: str) -> str:
    with pytest.raises(ConfigError) as caught:
        load_config(path, overrides)
    return str(caught.value)


def test_every_section_is_read_and_paths_start_at_the_file(write, tmp_path: Path) -> None:
    config = load_config(write(FULL))
    assert config.model.path == tmp_path / "models" / "net.onnx"
    calibration, test = config.data.calibration, config.data.test
    assert isinstance(calibration, NpzDataset) and isinstance(test, LoaderDataset)
    assert calibration.npz == tmp_path / "data" / "train.npz"
    assert (calibration.x, calibration.y, calibration.slice) == ("images", None, (0, 8))
    assert (calibration.layout, calibration.mean, calibration.std) == ("NHWC->NCHW", (1, 2, 3), (2,))
    assert test.loader == f"{tmp_path / 'load.py'}:load"
    assert (test.args, test.split, test.samples) == ({"name": "net"}, "test", 5)
    assert config.prepare.split == ("head*",)
    assert (config.calibrate.method, config.calibrate.lambda_) == ("historical", 10)
    assert config.quantize.activation_of("conv.1").bits == 4
    assert config.compile.target == TargetConfig(mcpu="x86-64-v2", features=("avx2", "-sse3"), threads=2)
    assert config.compile.tune == TuneConfig(trials=8)
    assert (config.evaluate.samples, config.evaluate.check) == (100, 3)
    assert config.output == tmp_path / "out" / "net"


def test_only_the_model_is_needed(write) -> None:
    config = load_config(write("model: {path: net.onnx}"))
    assert config == RunConfig(model=config.model)
    assert config.output is None and config.data.test is None


@pytest.mark.parametrize("text", ["", "compile: {}", "compile: {target: native}", "compile: {target: llvm}"])
def test_the_target_is_this_machine_if_no_other_is_named(write, text: str) -> None:
    assert load_config(write(f"model: {{path: m}}\n{text}")).compile.target == TargetConfig()


def test_absolute_paths_stay(write) -> None:
    assert load_config(write("model: {path: /models/net.onnx}")).model.path == Path("/models/net.onnx")


def test_a_folder_of_images_is_given_channels_first_by_default(write) -> None:
    config = load_config(write("{model: {path: m}, data: {test: {folder: images, resize: 256, crop: [224, 192]}}}"))
    test = config.data.test
    assert isinstance(test, FolderDataset)
    assert (test.layout, test.resize, test.crop) == ("NHWC->NCHW", (256,), (224, 192))


@pytest.mark.parametrize(
    ("text", "needed"),
    [
        ("quantize:\n  activation:\n    bit: 8", ["config.yaml:4: quantize.activation.bit", "8", "activation.bits?"]),
        ("quantise: {}", ["config.yaml:2: quantise", "did you mean quantize?"]),
        ("quantize: {bits: 8}", ["quantize.activation.bits or quantize.weight.bits"]),
        ("evaluate: {zoom: 3}", ["evaluate.zoom", "samples, batch_size, check"]),
        ("data: {test: {npz: a, layuot: x}}", ["data.test.layuot", "data.test.layout?"]),
        ("data: {test: {npz: a, loader: b}}", ["data.test", "exactly one of the keys npz, npy, folder and loader"]),
        ("data: {test: a.npz}", ["data.test", "'a.npz'", "npz, npy, folder and loader"]),
        ("data: {test: {npz: a, layout: NHWC}}", ["data.test.layout", "'NHWC'", "NHWC->NCHW"]),
        ("data: {test: {npz: a, layout: NHWC->NCHX}}", ["data.test.layout"]),
        ("data: {test: {npz: a, layout: NHWC->CNHW}}", ["data.test.layout", "batch first"]),
        ("data: {test: {npz: a, slice: [3, 3]}}", ["data.test.slice", "start < stop"]),
        ("data: {test: {npz: a, std: [1, 0]}}", ["data.test.std", "must not be 0"]),
        ("data: {test: {npz: a, mean: [1, x]}}", ["data.test.mean.1", "'x'", "number"]),
        ("data: {test: {loader: load.py}}", ["data.test.loader", "file.py:function"]),
        ("data: {test: {npz: a, samples: true}}", ["data.test.samples", "truth value"]),
        ("compile: {batch: 0}", ["compile.batch is 0", "greater than or equal to 1"]),
        ("compile: {target: [1]}", ["compile.target is [1]", "mapping"]),
        ("compile: {target: amd}", ["compile.target is 'amd'", "native, or a mapping of the keys kind, mcpu"]),
        ("compile: {target: {kind: cuda}}", ["compile.target.kind is 'cuda'", "'llvm'"]),
        ("compile: {target: {mcup: znver4}}", ["compile.target.mcup", "compile.target.mcpu?"]),
        ("compile: {target: {mcpu: 4}}", ["compile.target.mcpu is 4", "string"]),
        ("compile: {target: {features: avx2}}", ["compile.target.features is 'avx2'"]),
        ("compile: {target: {features: [avx2, +]}}", ["compile.target.features.1 is '+'", "such as avx512vnni"]),
        ("compile: {target: {threads: 0}}", ["compile.target.threads is 0", "greater than or equal to 1"]),
        ("compile: {target: {threads: true}}", ["compile.target.threads is True", "integer"]),
        ("compile: {tune: 8}", ["compile.tune is 8", "mapping"]),
        ("compile: {tune: {trials: 0}}", ["compile.tune.trials is 0", "greater than or equal to 1"]),
        ("compile: {tune: {}}", ["compile.tune.trials is missing"]),
        ("compile: {tune: {trails: 8}}", ["compile.tune.trails", "compile.tune.trials?"]),
        ("quantize: {weight: {bits: 17}}", ["quantize.weight.bits is 17", "16"]),
        ("quantize: {weight: {scales: chanel}}", ["quantize.weight.scales is 'chanel'", "output_channel"]),
        ("quantize: {activation: {granularity: {channel: 0}}}", ["granularity", "channel", "0"]),
        ("quantize: {activation: {granularity: {chanel: 2}}}", ["quantize.activation.granularity", "channel"]),
        ("quantize: {activation: {granularity: row}}", ["quantize.activation.granularity", "'row'", "auto"]),
        ("quantize: {weight: {granularity: auto}}", ["quantize.weight.granularity", "'auto'", "layer"]),
        ("quantize: {max_extra_operations: -0.1}", ["quantize.max_extra_operations is -0.1", "0"]),
        ("quantize: {overrides: {c: {weight: {bit: 2}}}}", ["quantize.overrides.c.weight.bits?"]),
        ("calibrate: {lambda_x: 2}", ["calibrate.lambda_x", "calibrate.lambda?"]),
        ("quantize: 8", ["quantize is 8", "mapping"]),
        ("output: ${UNSET_NAME}/x", ["config.yaml:2: output", "UNSET_NAME is not set"]),
        ("output: a\noutput: b", ["config.yaml:3: output is set twice", "config.yaml:2"]),
        ("output: [", ["config.yaml:3", "not YAML"]),
        ("data: &d {test: *d}", ["config.yaml:2", "contains itself"]),
    ],
)
def test_what_is_wrong_is_named_with_its_line_and_a_remedy(write, text: str, needed: list[str]) -> None:
    message = error_of(write(f"model: {{path: m.onnx}}\n{text}\n"))
    for part in needed:
        assert part in message
    assert "\n" not in message


def test_a_missing_model_is_named(write) -> None:
    assert "model is missing" in error_of(write("output: x"))
    assert "model.path is missing" in error_of(write("model: {}"))


@pytest.mark.parametrize("text", ["", "- 1", "just words"])
def test_a_file_that_is_no_mapping_lists_the_sections(write, text: str) -> None:
    sections = "model, data, prepare, calibrate, quantize, compile, evaluate, report, cluster, device, output"
    assert sections in error_of(write(text))


def test_every_wrong_key_is_told_at_once(write) -> None:
    message = error_of(write("model: {path: m}\noutptu: x\nevaluate: {chekc: 1}\n"))
    assert "output?" in message and "evaluate.check?" in message


def test_a_file_that_is_missing_or_no_text(tmp_path: Path) -> None:
    assert "No such file" in error_of(tmp_path / "none.yaml")
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00")
    assert "UTF-8" in error_of(tmp_path / "binary.yaml")


def test_granularity_is_read_in_all_its_forms(write) -> None:
    text = """
model: {path: m}
quantize:
  activation: {granularity: auto}
  weight: {granularity: {channel: 8}}
  overrides: {"conv*": {activation: {granularity: {channel: 2}}, weight: {granularity: layer}}}
"""
    config = load_config(write(text)).quantize
    assert config.activation.granularity == "auto" and config.activation.channel_step is None
    assert config.activation_of("conv1").channel_step == 2 and config.activation_of("x").channel_step is None
    assert config.weight_of("conv1").channel_step is None and config.weight_of("fc").channel_step == 8


def test_overrides_replace_and_add_keys(write) -> None:
    overrides = ["quantize.activation.bits=5", "calibrate.samples=3", "quantize.overrides={a.b: {weight: {bits: 3}}}"]
    config = load_config(write(FULL), overrides)
    assert (config.quantize.activation.bits, config.calibrate.samples) == (5, 3)
    assert config.quantize.weight.bits == 6
    assert list(config.quantize.overrides) == ["a.b"]


def test_an_override_adds_a_section(write) -> None:
    assert load_config(write("model: {path: m}"), ["compile.batch=2"]).compile.batch == 2


@pytest.mark.parametrize(
    ("override", "needed"),
    [
        ("quantize.activation.bit=8", "--set quantize.activation.bit=8: quantize.activation.bit is not a key"),
        ("nonsense", "section.key=value is needed"),
        ("=3", "section.key=value is needed"),
        ("compile.batch=[", "not YAML"),
        ("compile.batch=-1", "--set compile.batch=-1: compile.batch is -1"),
        ("output.x=1", "no mapping"),
        ("output=${UNSET_NAME}", "UNSET_NAME is not set"),
    ],
)
def test_a_wrong_override_is_named(write, override: str, needed: str) -> None:
    assert needed in error_of(write(FULL), override)


def test_variables_fill_every_string_and_two_dollars_do_not(write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COUNT", "7")
    text = 'model: {path: m}\nevaluate: {samples: "${COUNT}"}\ndata: {test: {loader: "l.py:f", args: {a: "$${COUNT}"}}}'
    config = load_config(write(text))
    assert config.evaluate.samples == 7
    assert isinstance(config.data.test, LoaderDataset)
    assert config.data.test.args == {"a": "${COUNT}"}


def test_a_variable_that_begins_a_path_is_relative_to_the_working_directory(
    write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    monkeypatch.setenv("MODELS", "../zoo")
    assert load_config(write(FULL)).model.path == tmp_path / "zoo" / "net.onnx"


MODEL = "model: {path: m.onnx}\n"
NINE_FOLD = "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 12))
THREE_FOLD = "".join(f"a{n}: &a{n}\n  <<: [{', '.join([f'*a{n - 1}'] * 3)}]\n" for n in range(1, 30))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (f"a0: &a0 [x]\n{NINE_FOLD}", "more than 30000 values"),
        (f"a0: &a0 {{x: 1}}\n{THREE_FOLD}", "more than 30000 values"),
        ("a: [" + "1," * 40_000 + "]", "more than 30000 values"),
        ("a: " + "[" * 60_000, "config.yaml:2: not YAML: nested more than 50 deep"),
        ("a:\n  " + "- " * 3000, "config.yaml:3: not YAML: nested more than 50 deep"),
        ("#" * 2**17, "more than 131072 bytes"),
        ("output: a\0b", r"config.yaml:2: not YAML: character '\x00'"),
        ("output: \a", r"config.yaml:2: not YAML: character '\x07'"),
        ("evaluate: {samples: " + "9" * 5000 + "}", "config.yaml:2: not YAML: an integer of more than 64 bits"),
        ("evaluate: {samples: 0x" + "f" * 5000 + "}", "config.yaml:2: not YAML: an integer of more than 64 bits"),
        ("a: " + "1:" * 50_000 + "1", "config.yaml:2: not YAML: an integer of more than 64 bits"),
        ("? [a, b]\n: c", "config.yaml:2: not YAML: found unhashable key"),
        ("1: 2", "keys should be strings"),
        ("'': 2", "config.yaml:2: '' is not a key"),
        ("a: !!binary /w==", "config.yaml:2: not YAML"),
        ("a: !!python/object/apply:os.getcwd []", "config.yaml:2: not YAML"),
        ("a: 2020-99-99", "config.yaml: not YAML: month"),
        ("---\nmodel: {}", "another document"),
        (r'output: "a\0b"', "config.yaml:2: output is 'a"),
        ("output: ~no_such_user/x", "config.yaml:2: output is '~no_such_user/x'"),
        ("data: {test: {npz: a, scale: 1e400}}", "data.test.scale is '1e400'"),
        ("data: {test: {npz: a, mean: [.nan]}}", "data.test.mean.0 is nan"),
        ("data: {test: {npz: a, std: .inf}}", "data.test.std"),
        ("data: {test: {npz: a, std: 1.0e-60}}", "data.test.std is 1e-60"),
        ("compile: {batch: 9999999999}", "compile.batch is 9999999999"),
        ("data: {test: {folder: a, resize: 99999}}", "data.test.resize"),
        ("quantize: {inputs: {x: {scale: 1.0e-300}}}", "scale 1e-300 is outside"),
    ],
)
def test_what_would_hang_or_crash_is_one_error(write, text: str, told: str) -> None:
    assert told in error_of(write(MODEL + text + "\n"))


def test_what_is_no_regular_file_is_not_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero")):
        assert "a pipe, socket or device" in error_of(path)
    assert "is a folder" in error_of(tmp_path)
    for wrong in (None, 5, "", "a\0b"):
        assert "the path of a file" in error_of(wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("override", "needed"),
    [
        ("quantize.activaton.bits=3", "--set quantize.activaton.bits=3: quantize.activaton is not a key"),
        ("quantise.weight.bits=3", "--set quantise.weight.bits=3: quantise is not a key"),
        ("data.test.samples=5", "config.yaml:4 with --set data.test.samples=5: data.test "),
        ("data.calibration.samples=5", "--set data.calibration.samples=5: data.calibration is"),
        ("quantize.x={a: 1, a: 2}", "--set quantize.x={a: 1, a: 2}: a is set twice"),
        ("quantize.x=\0", r"--set quantize.x=\x00: not YAML"),
        ("quantize.x=" + "[" * 9000, "...: not YAML: nested"),
        ("quantize.x=&a [*a]", "contains itself"),
    ],
)
def test_what_an_override_does_is_blamed_on_it(write, override: str, needed: str) -> None:
    """Line 2 of the file sets another key of the section; line 4 is changed by the override and may be wrong itself."""
    text = "model: {path: m}\nquantize: {weight: {bits: 8}}\ndata:\n  test: {npz: a, loader: b}\n"
    message = error_of(write(text), override)
    assert needed in message and "config.yaml:2" not in message and len(message) < 1000
