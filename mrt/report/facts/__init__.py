"""What a report tells: the contents of report.json, typed, so that whoever shows it need not know who measured it.

Nothing is left out silently: a part that could not be measured is None, and `Report.missing` says why by its name, such
as `accuracy` or `layers.shares`. Energies are sums of squares, sizes bytes, times seconds, SQNRs decibels. A float that
is infinite, such as the SQNR of a tensor without error, is None.
"""

from mrt.report.facts.file import REPORT_FILE, read_report, report_bytes
from mrt.report.facts.headroom import Headroom, ProvenTensor
from mrt.report.facts.layer import (
    Bits,
    Channel,
    Choice,
    Errors,
    Form,
    Histogram,
    Layer,
    LayerSqnr,
    Rescaling,
    Shares,
    Values,
    Weights,
)
from mrt.report.facts.network import (
    Accuracy,
    Choices,
    ErrorGroup,
    ErrorTotals,
    Latency,
    ModelFacts,
    Note,
    Output,
    Part,
    Port,
    Proof,
    Report,
    Sizes,
    Trial,
    Trials,
)
from mrt.report.facts.time import Function, MachineFacts, MemoryPlan, PlannedTensor, Time

__all__ = [
    "REPORT_FILE",
    "Accuracy",
    "Bits",
    "Channel",
    "Choice",
    "Choices",
    "ErrorGroup",
    "ErrorTotals",
    "Errors",
    "Form",
    "Function",
    "Headroom",
    "Histogram",
    "Latency",
    "Layer",
    "LayerSqnr",
    "MachineFacts",
    "MemoryPlan",
    "ModelFacts",
    "Note",
    "Output",
    "Part",
    "PlannedTensor",
    "Port",
    "Proof",
    "ProvenTensor",
    "Report",
    "Rescaling",
    "Shares",
    "Sizes",
    "Time",
    "Trial",
    "Trials",
    "Values",
    "Weights",
    "read_report",
    "report_bytes",
]
