"""Certificates: enclosures of the optimum of the stated problem."""

from kernelopt.certificate.certify import certify, certify_again, certify_without_pass, solver_multipliers
from kernelopt.certificate.report import ESTIMATE, FULL, REDUCED, Certificate

__all__ = [
    "ESTIMATE",
    "FULL",
    "REDUCED",
    "Certificate",
    "certify",
    "certify_again",
    "certify_without_pass",
    "solver_multipliers",
]
