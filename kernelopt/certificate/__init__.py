"""Certificates: enclosures of the optimum of the stated problem."""

from kernelopt.certificate.certify import AS_COMPUTED, certify, certify_again, certify_without_pass, solver_multipliers
from kernelopt.certificate.report import ESTIMATE, FULL, REDUCED, Certificate

__all__ = [
    "AS_COMPUTED",
    "ESTIMATE",
    "FULL",
    "REDUCED",
    "Certificate",
    "certify",
    "certify_again",
    "certify_without_pass",
    "solver_multipliers",
]
