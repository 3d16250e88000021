"""Files: fitted functions and arrays in one zip of JSON and .npy, without pickle."""

from kernelopt.persistence.loading import load
from kernelopt.persistence.saving import save

__all__ = ["load", "save"]
