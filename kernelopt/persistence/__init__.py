"""Files: fitted functions and arrays in one zip of JSON and .npy, without pickle."""

from kernelopt.persistence.loading import load
from kernelopt.persistence.proofs import Proof, load_certificate
from kernelopt.persistence.saving import save

__all__ = ["Proof", "load", "load_certificate", "save"]
