"""Where work runs: on this machine's cores, or on the workers of a cluster; with the same results, to the last bit."""

from mrt.execution.executor import Executor, Gathers, Keeps, Kept, Merges
from mrt.execution.program import Program
from mrt.execution.threads import THREADS, Threads

__all__ = ["THREADS", "Executor", "Gathers", "Keeps", "Kept", "Merges", "Program", "Threads"]
