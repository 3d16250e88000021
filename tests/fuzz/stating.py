"""One problem, stated twice: in kernelopt, and in an explicit θ ∈ Rᵖ with plain cvxpy."""

from dataclasses import dataclass
from typing import Any

import cvxpy as cp
import numpy as np

import kernelopt as ko


def tight(tol=1e-11):
    """Clarabel's tolerances."""
    return {"tol_gap_abs": tol, "tol_gap_rel": tol, "tol_feas": tol}


TIGHT = tight()


def solve_tightly(problem):
    """To the tightest tolerances at which the solver does not break down; ours to the smallest certified gap."""
    gaps = {}
    for tol in (1e-11, 1e-10, 1e-9):
        try:
            value = problem.solve(solver="CLARABEL", **tight(tol))
        except cp.error.SolverError:
            continue
        if isinstance(problem, cp.Problem) or problem.certificate is None:
            return value
        gaps[tol] = problem.certificate.absolute_gap
        if gaps[tol] <= 1e-10 * max(1.0, abs(value)):
            return value
    if gaps:
        return problem.solve(solver="CLARABEL", **tight(min(gaps, key=gaps.get)))
    return problem.solve(solver="SCS", eps_abs=1e-10, eps_rel=1e-10, max_iters=1_000_000)


class InKernel:
    """θ behind a kernel."""

    problem = ko.Problem

    def theta(self, kernel, outputs=None):
        return ko.Theta(kernel, outputs=outputs)

    def norm(self, theta, kind=None):
        return ko.norm(theta, kind)

    def sum_squares(self, theta):
        return ko.sum_squares(theta)


class ExplicitTheta:
    """θ ∈ Rᵖ or Rᵖˣᴷ with the kernel's features."""

    def __init__(self, kernel, outputs, p):
        self.features = kernel.features
        self.variable = cp.Variable(p if outputs is None else (p, outputs))

    def __call__(self, X):
        return self.features(X) @ self.variable

    def __getitem__(self, index):
        return self.variable[index]


class InFeatures:
    """θ itself."""

    problem = cp.Problem

    def __init__(self, columns):
        self.columns = columns

    def theta(self, kernel, outputs=None):
        return ExplicitTheta(kernel, outputs, kernel.features(np.ones((1, self.columns))).shape[1])

    def norm(self, theta, kind=None):
        v = theta.variable if isinstance(theta, ExplicitTheta) else theta
        return {None: cp.norm, "fro": lambda x: cp.norm(x, "fro"), "nuc": cp.normNuc, 2: cp.sigma_max}[kind](v)

    def sum_squares(self, theta):
        return cp.sum_squares(theta.variable)


@dataclass
class Statement:
    """What a builder returns: the problem, and what to compare."""

    objective: Any
    constraints: list
    thetas: list
    variables: tuple = ()


def solve_both(build, columns, X_new):
    """(ours, explicit), each (problem, thetas, predictions at new points, norms, variables)."""
    results = []
    for language in (InKernel(), InFeatures(columns)):
        said = build(language)
        problem = language.problem(said.objective, said.constraints)
        solve_tightly(problem)
        assert problem.status in ("optimal", "optimal_inaccurate")
        results.append(
            {
                "problem": problem,
                "thetas": said.thetas,
                "predictions": [theta(X_new).value for theta in said.thetas],
                "norms": [
                    theta.value.norm if isinstance(theta, ko.Theta) else float(np.linalg.norm(theta.variable.value))
                    for theta in said.thetas
                ],
                "variables": [v.value for v in said.variables],
                "duals": [c.dual_value for c in said.constraints],
            }
        )
    return results


def enclosed(problem, reference, gap=1e-5):
    """Assert that the certificate holds the optimum, and closely so."""
    found = problem.certificate
    slack = 1e-7 * abs(reference) + 1e-9
    assert found.lower - slack <= reference <= found.upper + slack, (found, reference)
    assert found.scope == "full kernel"
    assert found.relative_gap <= gap or found.absolute_gap <= max(found.floor, slack), found


def agree(build, columns, X_new, *, unique=True, objective=1e-7, solution=1e-5):
    """Assert that both statements have one answer."""
    ours, explicit = solve_both(build, columns, X_new)
    value, reference = ours["problem"].value, explicit["problem"].value
    assert abs(value - reference) <= objective * abs(reference) + 1e-9, (value, reference)
    enclosed(ours["problem"], reference)
    if unique:
        scale = max(1.0, *(np.abs(p).max() for p in explicit["predictions"]))
        for a, b in zip(ours["predictions"], explicit["predictions"], strict=True):
            assert np.abs(a - b).max() <= solution * scale
        for a, b in zip(ours["norms"], explicit["norms"], strict=True):
            assert abs(a - b) <= solution * max(1.0, b)
        for a, b in zip(ours["variables"], explicit["variables"], strict=True):
            assert np.abs(a - b).max() <= solution * max(1.0, np.abs(b).max())
    return ours, explicit
