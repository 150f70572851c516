"""Options from Python: what is wrong is a ConfigError that names the key, what was found and what is needed."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable

import pytest
from pydantic import BaseModel

import mrt
from mrt.errors import ConfigError
from mrt.options import checked


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: mrt.QuantizationConfig(weight={"bits": 99}), ["QuantizationConfig: weight.bits is 99", "16"]),
        (lambda: mrt.QuantizationConfig(weight={"bit": 9}), ["weight.bit is not a key", "weight.bits?"]),
        (lambda: mrt.QuantizationConfig(wieght={}), ["wieght is not a key", "did you mean weight?"]),
        (lambda: mrt.QuantizationConfig(overrides={"conv*": 5}), ["overrides.conv* is 5", "mapping"]),
        (lambda: mrt.QuantizationConfig(inputs={"x": {"range": (5, 1)}}), ["inputs.x", "[5, 1]", "uint8"]),
        (lambda: mrt.QuantizationConfig(inputs={"x": {"scale": 1e-40}}), ["inputs.x", "scale 1e-40"]),
        (lambda: mrt.QuantizationConfig.model_validate(5), ["QuantizationConfig is 5", "mapping"]),
        (lambda: mrt.CalibrationConfig(lambda_=-1), ["lambda_ is -1", "greater than 0"]),
        (lambda: mrt.CalibrationConfig(**{"lambda": -1}), ["lambda is -1", "greater than 0"]),
        (lambda: mrt.CalibrationConfig(samples=-(10**5000)), ["samples", "too long to print"]),
        (lambda: mrt.CalibrationConfig(method="x", bits=40), ["method is 'x'", "bits is 40"]),
        (lambda: mrt.PreparationConfig(split=5), ["split is 5", "tuple"]),
        (lambda: mrt.TuneConfig(), ["trials is missing"]),
        (lambda: mrt.TargetConfig(mcpu=3), ["mcpu is 3", "string"]),
    ],
)
def test_wrong_options_are_named(make: Callable[[], BaseModel], told: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        make()
    assert all(part in str(caught.value) for part in told), str(caught.value)


def test_options_stay_what_pydantic_makes_of_them() -> None:
    config = mrt.QuantizationConfig(weight={"bits": 4}, inputs={"x": {}})
    assert copy.deepcopy(config) == pickle.loads(pickle.dumps(config)) == config
    assert mrt.QuantizationConfig.model_validate(config.model_dump()) == config
    assert mrt.QuantizationConfig.model_validate_json(config.model_dump_json()) == config


def test_an_argument_of_another_kind_is_named() -> None:
    assert checked(None, mrt.CalibrationConfig, "calibration") == mrt.CalibrationConfig()
    with pytest.raises(ConfigError, match=r"calibration is \{'samples': 5\}; an mrt.CalibrationConfig, or None"):
        checked({"samples": 5}, mrt.CalibrationConfig, "calibration")
