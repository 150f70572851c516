"""The stages of the pipeline, one a file: the step that each saves, how, and what its result depends on."""

from mrt.stages.calibrate import CALIBRATE
from mrt.stages.compile import COMPILE
from mrt.stages.evaluate import EVALUATE
from mrt.stages.prepare import PREPARE
from mrt.stages.quantize import QUANTIZE
from mrt.stages.report import REPORT
from mrt.stages.stage import SUMMARY, Run, Stage

__all__ = ["STAGES", "SUMMARY", "Run", "Stage"]

STAGES = (PREPARE, CALIBRATE, QUANTIZE, COMPILE, EVALUATE, REPORT)
"""The stages in order."""
