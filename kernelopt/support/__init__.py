"""Helpers that all packages share and that know nothing of kernels: arithmetic, time limits, threads, tables, plots."""
