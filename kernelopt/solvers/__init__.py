"""Solvers of the reduced problem, one file per family; `choice` says which of them take a problem."""
