"""Certificates: enclosures of the optimum of the stated problem."""

from kernelopt.certificate.attained import errors_of_predictions, lacks_zero
from kernelopt.certificate.certify import (
    AS_COMPUTED,
    Certified,
    Request,
    by_boxes,
    by_word,
    certified,
    certify,
    certify_again,
    certify_without_pass,
    first_look,
    gap_of_solver,
    value_at_zero,
    without_lower_bound,
)
from kernelopt.certificate.report import ESTIMATE, FULL, REDUCED, Certificate

__all__ = [
    "AS_COMPUTED",
    "ESTIMATE",
    "FULL",
    "REDUCED",
    "Certificate",
    "Certified",
    "Request",
    "by_boxes",
    "by_word",
    "certified",
    "certify",
    "certify_again",
    "certify_without_pass",
    "errors_of_predictions",
    "first_look",
    "gap_of_solver",
    "lacks_zero",
    "value_at_zero",
    "without_lower_bound",
]
