"""Whether a problem in α that was derived by hand is equivalent to the stated problem in θ."""

from kernelopt.equivalence.reduction_report import Counterexample, Enclosure, PointValue, ReductionReport
from kernelopt.equivalence.reductions import verify_reduction

__all__ = ["Counterexample", "Enclosure", "PointValue", "ReductionReport", "verify_reduction"]
