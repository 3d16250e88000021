"""Solvers of the reduced problem: one file a family, chosen in `choice`."""
