"""The Gaussian posterior of predictions around an answer: the Bayesian reading of a problem."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import log, pi
from typing import Any, NamedTuple

import cvxpy as cp
import numpy as np
import scipy.linalg as sl
import scipy.sparse as sp

from kernelopt.compiler import rules
from kernelopt.compiler.canonical_form import CanonicalForm, PredictionLink, links_of, rewrite
from kernelopt.compiler.outer import Outer
from kernelopt.compiler.terms import LogSumExp
from kernelopt.driver.statement import one_at_a_time
from kernelopt.errors import DataError, KernelOptError, NotPSDError, OptionError, ParameterError
from kernelopt.factorization import memory
from kernelopt.kernels.kernel import Kernel
from kernelopt.kernels.lifts import joint, lift_of, relifted, relifted_rows
from kernelopt.language.everywhere import Everywhere
from kernelopt.language.expressions import Theta
from kernelopt.language.nodes import ThetaLeaf
from kernelopt.language.rows import Rows
from kernelopt.language.survival import CoxLikelihood
from kernelopt.language.text import describe, letters
from kernelopt.model_selection import laplace
from kernelopt.model_selection.laplace import LaplaceSystem, PosteriorMode
from kernelopt.model_selection.leave_one_out import fitted
from kernelopt.model_selection.squares import coefficients, squares
from kernelopt.problem import Problem, require_problem
from kernelopt.results.solution import Status
from kernelopt.solvers import assemble, engines
from kernelopt.solvers.structured import Structured
from kernelopt.support.checks import generator, is_integer, require_number, shown
from kernelopt.support.types import Array

NUMBER = 8  # bytes of a number in double precision
BLOCK = 512  # rows of predictions whose means and deviations are computed at a time
# Relative difference up to which weights of squares count as equal, squares of the objective as all of its terms, and
# values of an expression as those of its slopes.
SAME = 1e-9
# Of the largest diagonal entry of Q: eigenvalues down to minus this are rounding.
NEGATIVE = 1e-9
BANDS = "For bands without a density use ko.jackknife, or fit two quantiles."


@one_at_a_time
def posterior(problem: Problem, *, noise: float | None = None, scale: float | None = None) -> Posterior:
    """The Gaussian approximation of the density ∝ exp(−objective/scale) of θ and the variables, around the answer.

    The penalty λ‖θ‖² is then a Gaussian process prior of f = θᵀF(x), of mean 0 and covariance scale·κ/(2λ); variables
    have a flat prior; losses are negative log likelihoods. Laplace's approximation has the mean of the highest density,
    the answer itself, and the covariance of its curvature there,

        cov(f(x), f(x′)) = (scale/2λ)[κ(x, x′) − k_xᵀ(Q + 2λW⁻¹)⁻¹k_x′],   W = diag of the losses' second derivatives.

    A free intercept adds (scale/2λ)·r_x r_x′/(1ᵀA1), with A = (Q + 2λW⁻¹)⁻¹ and r_x = 1 − k_xᵀA1. It is exact for
    squares. With Σ(yᵢ − f(xᵢ))² + λ‖θ‖² it is Gaussian process regression with noise variance scale/2, and with
    Σ log(1 + exp(−yᵢf(xᵢ))) + λ‖θ‖², scale = 1, the Laplace approximation of classification with covariance κ/(2λ)
    (Rasmussen and Williams, Gaussian Processes for ML, 2006, sections 2.2, 2.7 and 3.4).

    The answer is refined to the optimum with the full kernel matrix, whatever the rank of the factor, so that means may
    differ from `expression.value` within the certificate's gap. It takes O(N³) operations and a few N×N arrays.

    Parameters
    ----------
    problem : Problem
        Solved and convex, without constraints: smooth losses, λ·ko.sum_squares(theta) of its one θ without outputs, and
        free variables.
    noise : float > 0, optional
        For squares: the variance of an observation, in units of y². It sets scale = 2·weight·noise, with the weight
        that squares have in the objective (1 for `cp.sum_squares`, ½ for `0.5 * cp.sum_squares`, 1/N for means).
    scale : float > 0, optional
        What the objective is divided by. By default 1 for losses that are not squares: the objective itself is the
        negative log density. With a *mean* of N log losses use scale=1/N. For squares the default is the value of
        highest evidence with the stated λ, scale = 2·(objective without constants)/(N − number of variables), with N
        the number of squares of positive weight. An observation of weight wᵢ has noise variance scale/(2wᵢ).

    Returns
    -------
    Posterior

    Raises
    ------
    KernelOptError
        Before a solve, after changes of parameters, and for problems without such a model: constraints, integers,
        losses with kinks (hinge, absolute, pinball) or declared nonconvex, several θs or outputs, other norms than
        λ‖θ‖²; and where the losses' curvature does not determine the variables.
    OptionError
        For a noise or scale that is not a positive number, both together, and a noise where there is no one weight of
        squares.
    NotPSDError
        For kernel matrices with negative eigenvalues.
    MemoryLimitError
        Where the matrices do not fit.
    SolverError
        Where the optimum is not found to full accuracy.

    Notes
    -----
    Losses whose second derivative jumps (Huber, expectile, squared hinge) are taken with their curvature at the answer;
    rows on a linear piece have none. Penalties of variables, such as cp.sum_squares(b), count as losses.

    Examples
    --------
    >>> import cvxpy as cp, numpy as np, kernelopt as ko
    >>> X = np.linspace(0, 6, 50)[:, None]
    >>> y = np.sin(X[:, 0]) + 0.1 * np.random.default_rng(0).normal(size=50)
    >>> theta, b = ko.Theta(ko.kernels.Gaussian(sigma=1.0)), cp.Variable()
    >>> objective = cp.sum_squares(y - theta(X) - b) + 0.01 * ko.sum_squares(theta)
    >>> problem = ko.Problem(cp.Minimize(objective))
    >>> _ = problem.solve()
    >>> found = ko.posterior(problem, noise=0.01)
    >>> new = [[1.0], [9.0]]  # among the data, and far away
    >>> found.mean(theta(new) + b).round(2), found.std(theta(new) + b).round(2)
    (array([0.82, 0.  ]), array([0.04, 1.13]))
    """
    form, outer, link, read = _readable(problem)
    chosen = _scale_of(noise, scale, read)
    places = sp.csr_array(assemble.places_of_y(outer))
    state = _PosteriorState(link.theta.kernel.at_present(), link.rows, read.E, places, read.mode, read.system)
    return Posterior(
        link.theta, tuple(form.users.get(v.id, v) for v in form.y), chosen.scale, chosen.noise, read.exact,
        chosen.estimated, _log_evidence(read, chosen), state,
    )  # fmt: skip


class _AtMode(NamedTuple):
    """The mode and the curvature there; exact : whether all losses are squares; weights : of these, where > 0, None
    where there are other terms or terms of other kinds; free : the number of free columns."""

    E: sp.csr_array
    mode: PosteriorMode
    system: LaplaceSystem
    exact: bool
    weights: Array | None
    free: int


class _DensityScale(NamedTuple):
    scale: float
    noise: float | None
    estimated: bool


@dataclass(frozen=True, eq=False)
class _PosteriorState:
    """What rows are evaluated with: the kernel, training rows, E (s = Ed + …), columns of y, mode and its curvature."""

    kernel: Kernel
    rows: Rows
    E: sp.csr_array
    places: sp.csr_array
    mode: PosteriorMode
    system: LaplaceSystem


@dataclass(frozen=True, eq=False, repr=False)
class Posterior:
    """The Gaussian posterior of θ and the variables of a problem; made by `ko.posterior`.

    Its methods take `rows`, an affine expression of any predictions of θ and the variables, as a user states them:
    `theta(X_new)`, `theta(X_new) + b`, `theta.derivative(0)(X_new)`, `ko.integral(lower, upper, kernel) @ theta`,
    differences and weighted sums of them. They describe f, not new observations of it, to whose variance `noise` adds.
    It stays as it is when the problem is solved again. It prints as one line.

    Attributes
    ----------
    theta : Theta
    variables : tuple of cvxpy variables, with a flat prior
    scale : float
        The density is ∝ exp(−objective/scale).
    noise : float or None
        Variance of an observation, for squares of one weight.
    is_exact : bool
        Whether the losses are squares, so that the posterior is Gaussian. Otherwise it is Laplace's approximation.
    is_estimated : bool
        Whether the scale is the one of highest evidence.
    log_evidence : float
        log ∫exp(−losses/scale) over the prior of θ and all values of the variables, in nats: the log marginal
        likelihood where exp(−losses/scale) is a normalized likelihood, as for log losses with scale 1. For squares the
        normalizing constants −½ log(2π·variance) of each are added. Other losses lack constants that do not depend on
        θ, λ and the kernel, such as log y! of counts. Constants of the objective do not count.

    Examples
    --------
    >>> import cvxpy as cp, kernelopt as ko
    >>> theta = ko.Theta(ko.kernels.Linear())
    >>> loss = cp.sum_squares([1.0, 2.0, 3.1] - theta([[1.0], [2.0], [3.0]]))
    >>> problem = ko.Problem(cp.Minimize(loss + 0.01 * ko.sum_squares(theta)))
    >>> _ = problem.solve()
    >>> found = ko.posterior(problem, noise=0.01)
    >>> print(found)
    posterior of θ: Gaussian, exact; density ∝ exp(−objective/0.02), noise variance 0.01; log evidence -0.1714
    >>> found.mean(theta([[10.0]])).round(2), found.std(theta([[10.0]])).round(2)
    (array([10.21]), array([0.27]))
    """

    theta: Theta
    variables: tuple[cp.Variable, ...]
    scale: float
    noise: float | None
    is_exact: bool
    is_estimated: bool
    log_evidence: float
    _state: _PosteriorState

    def mean(self, rows: cp.Expression) -> Array:
        """The posterior mean of each entry, in the shape of `rows`.

        Raises DataError for what is no such expression, and KernelOptError where the kernel's parameters changed.
        """
        read = self._read(rows)
        state = self._state
        found = read.m @ state.mode.y + read.constant
        for at, _, k in self._blocks(read, prior=False):
            found[at] += k @ state.mode.c / state.system.R
        return np.asarray(found.reshape(rows.shape, order="F"))

    def std(self, rows: cp.Expression) -> Array:
        """The posterior standard deviation of each entry, in the shape of `rows`.

        Large sets of rows are processed in blocks, without their covariance. Raises as `mean`.
        """
        read, state = self._read(rows), self._state
        found = np.zeros(len(read.constant))
        for at, prior, k in self._blocks(read):
            found[at] = laplace.variance(state.system, prior, np.asarray(state.E @ k.T), read.m[at])
        return np.asarray(np.sqrt(self.scale * found).reshape(rows.shape, order="F"))

    def covariance(self, rows: cp.Expression) -> Array:
        """The posterior covariance of all n entries, (n, n); a matrix counts column by column. Raises as `mean`."""
        read, state = self._read(rows), self._state
        n = len(read.constant)
        distinct = 0 if read.link is None else len(read.link.rows)
        memory.require(NUMBER * (4 * n**2 + distinct**2), "The covariance", None, "Use fewer rows, or std(rows)")
        k, prior = np.zeros((n, len(state.rows))), np.zeros((n, n))
        if read.link is not None:
            k = read.L @ _inner(read.link.rows, state.rows)
            prior = np.asarray(read.L @ (read.L @ read.link.rows.gram()).T)
        return self.scale * laplace.covariance(state.system, prior, np.asarray(state.E @ k.T), read.m)

    def sample(
        self, rows: cp.Expression, size: int = 1, random_state: int | np.random.Generator | None = None
    ) -> Array:
        """Draws of the rows, jointly, (size, *shape of rows).

        By an eigendecomposition of their covariance, O(n³), so that repeated rows and rows without variance are drawn
        too. Raises as `mean`, and OptionError for other sizes or seeds.
        """
        if not is_integer(size) or size < 0:
            raise OptionError(f"Expected size to be an integer ≥ 0; got {shown(size)}.")
        random = generator(random_state)
        mean = np.ravel(self.mean(rows), order="F")
        values, vectors = np.linalg.eigh(self.covariance(rows))
        draws = mean + random.normal(size=(int(size), len(mean))) @ (vectors * np.sqrt(np.maximum(values, 0.0))).T
        # Each draw is in Fortran order: its axes reversed, as numpy counts them.
        return np.asarray(draws.reshape(-1, *rows.shape[::-1]).transpose(0, *range(len(rows.shape), 0, -1)))

    def __str__(self) -> str:
        kind = "Gaussian, exact" if self.is_exact else "Gaussian, Laplace's approximation"
        noise = "" if self.noise is None else f", noise variance {self.noise:.4g}"
        how = " (of highest evidence)" if self.is_estimated else ""
        density = "exp(−objective)" if self.scale == 1 else f"exp(−objective/{self.scale:.4g})"
        whose = ", ".join([str(self.theta.name), *_names(self.variables)])
        return f"posterior of {whose}: {kind}; density ∝ {density}{noise}{how}; log evidence {self.log_evidence:.4g}"

    __repr__ = __str__

    # ---------------------------------------------------------------- rows

    def _read(self, rows: Any) -> _StatedRows:
        """An expression as Lu′ + my + constant, u′ the predictions at distinct new rows. Raises as `mean`."""
        if self.theta.kernel.at_present() != self._state.kernel:
            raise KernelOptError(
                f"Expected the kernel of the posterior, {self._state.kernel!r}; its parameters changed since. Solve "
                "again, and call ko.posterior again."
            )
        if not isinstance(rows, cp.Expression) or not rows.is_affine() or rows.is_complex():
            raise DataError(
                "Expected rows to be a real affine expression of predictions, such as theta(X_new) + b; "
                f"got {shown(rows)}."
            )
        predictions, _, replaced = links_of(rules.inspect(cp.Minimize(cp.sum(rows)), ()))
        foreign = [link.theta for link in predictions if link.theta is not self.theta]
        if foreign:
            raise DataError(f"Expected rows of {self.theta!r}, whose posterior this is; got {foreign[0]!r}.")
        users = [v for v in rows.variables() if not isinstance(v, ThetaLeaf)]
        if other := [v.name() for v in users if not any(v is known for known in self.variables)]:
            raise DataError(f"Expected variables of the problem; {other[0]} is none that its posterior has.")
        if unknown := [p.name() for p in rows.parameters() if p.value is None]:
            raise ParameterError(f"Expected rows whose parameters have values; {unknown[0]} has none.")
        twins = [cp.Variable(v.shape) for v in self.variables]
        replaced |= {id(v): twin for v, twin in zip(self.variables, twins, strict=True)}
        cut = rewrite(cp.Problem(cp.Minimize(cp.sum(rows))), replaced).objective.args[0].args[0]
        u = [link.u for link in predictions if link.u is not None]
        L, m, constant = _affine(cut, u, twins)
        link = predictions[0] if u else None
        if link is not None:
            count = len(link.take)
            take = sp.csr_array((np.ones(count), link.take, np.arange(count + 1)), shape=(count, len(link.rows)))
            L = sp.csr_array(L @ take)
        return _StatedRows(link, L, np.asarray((m @ self._state.places).toarray()), constant)

    def _blocks(self, read: _StatedRows, prior: bool = True) -> Iterator[tuple[slice, Array, Array]]:
        """For some rows at a time: which, the prior's gᵀg in units of scale/R, and their inner products with the
        training rows, (rows, n)."""
        state = self._state
        for start in range(0, len(read.constant), BLOCK):
            at = slice(start, min(start + BLOCK, len(read.constant)))
            L = sp.csr_array(read.L[at])
            used = np.unique(L.indices)
            if read.link is None or not len(used):
                yield at, np.zeros(L.shape[0]), np.zeros((L.shape[0], len(state.rows)))
                continue
            L, rows = sp.csr_array(L[:, used]), read.link.rows.subset(used)
            memory.require(2 * NUMBER * len(used) ** 2, "The matrix of the rows' points", None)
            of_prior = np.sum(L.toarray() * (L @ rows.gram()), axis=1) if prior else np.zeros(L.shape[0])
            yield at, of_prior, np.asarray(L @ _inner(rows, state.rows))


class _StatedRows(NamedTuple):
    """Rows Lu + my + constant, with u the predictions at the distinct rows of `link`, None without predictions."""

    link: PredictionLink | None
    L: sp.csr_array
    m: Array
    constant: Array


def _affine(e: Any, u: list[cp.Variable], y: list[cp.Variable]) -> tuple[sp.csr_array, sp.csr_array, Array]:
    """e = Lu + my + constant, in Fortran order. Raises DataError for an atom whose derivative cvxpy does not know."""
    leaves, random = [*u, *y], np.random.default_rng(0)
    for leaf in leaves:
        leaf.save_value(np.zeros(leaf.shape))
    L, m = coefficients(e, u), coefficients(e, y)
    constant = np.array(np.ravel(e.value, order="F"), dtype=float)
    for leaf in leaves:
        leaf.save_value(random.normal(size=leaf.shape))
    values = np.concatenate([np.zeros(0), *(np.ravel(leaf.value, order="F") for leaf in leaves)])
    slopes = sp.csr_array(sp.hstack([L, m]))
    found, size = slopes @ values + constant, abs(slopes) @ np.abs(values) + np.abs(constant)
    if np.any(np.abs(found - np.ravel(e.value, order="F")) > SAME * size):
        raise DataError("Expected rows made by sums, indices and products with arrays; cvxpy knows no slope of these.")
    return L, m, constant


def _inner(left: Rows, right: Rows) -> Array:
    """The inner products of two sets of rows of one θ, (left, right)."""
    lift = joint([lift_of(left.kernel), lift_of(right.kernel)])
    (Z, C), (Y, D) = (rows.among(np.arange(len(rows))) for rows in (left, right))
    Z, Y = relifted_rows(left.kernel, Z, lift), relifted_rows(right.kernel, Y, lift)
    values = relifted(right.kernel, lift)._matrix(Z, Y)
    return np.asarray((D.T @ (C.T @ values).T).T)


# -------------------------------------------------------------------- the problem


def _readable(problem: Any) -> tuple[CanonicalForm, Outer, PredictionLink, _AtMode]:
    """The form of a problem, and its mode. Raises KernelOptError for problems that have no such posterior."""
    require_problem(problem)
    _require_statement(problem)
    problem._answer()  # raises for problems that are not solved, or changed since
    form, reduction, outer = fitted(problem)
    assert outer is not None
    _require_smooth(form, outer)
    if problem.status == Status.NOT_ATTAINED:
        raise _no("no θ and variables attain the optimum", "Penalize the variables, + 1e-3 * cp.sum_squares(b).")
    shape = assemble.shape_of(form, outer)
    assert shape.lengths is not None
    assert outer.split is not None
    link, m = reduction.form.predictions[0], outer.split.E.shape[0]
    n = len(link.rows)
    memory.require(NUMBER * (3 * m**2 + m * n + 2 * n**2), "The posterior", None)
    point, terms = engines.optimum(reduction, outer, problem._left_off)
    R, y = float(shape.lengths.curvature[0]), point.x[terms.ends[-1] :]
    Q = link.rows.gram()
    _require_psd(Q, link.theta)
    mode, system = laplace.mode(terms, Q, R, point.s, y)
    _require_determined(form, outer, system)
    weights = _weights_of_squares(form, terms, mode) if shape.squares else None
    return form, outer, link, _AtMode(terms.E, mode, system, shape.squares, weights, terms.q)


def _require_psd(Q: Array, theta: Theta) -> None:
    """Raise NotPSDError where Q has negative eigenvalues beyond rounding: variances would be negative."""
    shifted = Q.copy()
    shifted[np.diag_indices_from(Q)] += NEGATIVE * float(Q.diagonal().max(initial=0.0)) + np.finfo(float).tiny
    try:
        sl.cholesky(shifted, lower=True, overwrite_a=True, check_finite=False)
    except np.linalg.LinAlgError as error:
        raise NotPSDError(
            f"Expected the covariance of a posterior to be positive semidefinite; {theta.kernel!r} is indefinite on "
            "these points. Use a positive semidefinite kernel."
        ) from error


def _names(variables: Sequence[cp.Variable]) -> list[str]:
    """Their names, or letters as in the printed problem."""
    found = letters(variables)
    return [found.get(v.id, str(v.name())) for v in variables]


def _no(why: str, remedy: str) -> KernelOptError:
    return KernelOptError(f"Expected a problem with a Gaussian posterior; here {why}. {remedy}")


def _require_statement(problem: Problem) -> None:
    """Raise KernelOptError for what the statement alone excludes."""
    if problem.is_mixed_integer():
        raise _no("variables are integers", "Fix them at their values, and solve the problem of the others.")
    if problem.constraints:
        first = problem.constraints[0]
        stated = first.text if isinstance(first, Everywhere) else describe(first)
        raise _no(
            f"there are constraints, as {stated}, which cut the density off",
            f"State the problem without them. {BANDS}",
        )
    if CoxLikelihood in problem.atoms():
        raise _no("a partial likelihood couples rows", "Use losses of one row each.")
    thetas = problem.thetas()
    if len(thetas) != 1:
        raise _no(f"there are {len(thetas)} θs", "Use one, of a sum of kernels: ko.Theta(kernel_1 + kernel_2).")
    if thetas[0].outputs is not None:
        raise _no(f"{thetas[0]!r} has several outputs", "State a problem for each output.")


def _require_smooth(form: CanonicalForm, outer: Outer) -> None:
    """Raise KernelOptError for norms other than λ‖θ‖², and losses with kinks or that are not convex."""
    shape = assemble.shape_of(form, outer)
    penalty = "Penalize θ by λ·ko.sum_squares(theta) alone."
    if shape.nonconvex is not None:
        raise _no(f"{shape.nonconvex} is declared nonconvex", "Use a convex loss.")
    if shape.shifted:
        raise _no(
            "the norm is that of θ − f₀", "State the problem in the difference δ: θ = f₀ + δ, with f₀(X) as data."
        )
    if shape.lacks is not None:
        raise _no(f"the problem {shape.lacks}", f"{penalty} Use smooth losses of one row each.")
    if shape.odd is not None:
        raise _no("the norm of θ has another cost than λ‖θ‖², or a bound", penalty)
    split = outer.split
    assert split is not None
    if any(isinstance(term, LogSumExp) for term in split.terms):
        raise _no("a loss couples numbers, as a log-sum-exp does", "Use losses of one row each.")
    if shape.kinked or shape.hard or shape.maxima or len(split.y) > split.users:
        raise _no(
            "losses have kinks (hinge, absolute or pinball losses, maxima) or couple rows, or variables have bounds, "
            "so that there is no curvature of each row",
            f"Use a smooth loss of each row, and variables without a sign. {BANDS}",
        )
    if form.predictions[0].u is None:
        raise _no("θ has no predictions", "Add a loss of them.")


def _require_determined(form: CanonicalForm, outer: Outer, system: LaplaceSystem) -> None:
    """Raise KernelOptError where variables have no curvature."""
    columns = np.asarray(abs(assemble.places_of_y(outer)).sum(axis=1)).ravel()
    if not (system.determines_y and np.all(columns > 0)):
        names = ", ".join(_names([form.users.get(v.id, v) for v in form.y]))
        raise _no(
            f"the losses' curvature does not determine the variables {names}",
            "Drop a variable, or penalize it, `+ 1e-3 * cp.sum_squares(b)`.",
        )


def _weights_of_squares(form: CanonicalForm, problem: Structured, mode: PosteriorMode) -> Array | None:
    """The positive weights wᵢ of the squares of predictions, one for each observation; None where these are not all
    of the terms with predictions."""
    spread, terms = sp.csr_array(assemble.spread(form)), squares(form)
    w = np.concatenate([np.zeros(0), *(term.weights for term in terms)])
    E = sp.csr_array(sp.vstack([term.E for term in terms]) @ spread) if terms else sp.csr_array((0, problem.E.shape[1]))
    stated = E.power(2).T @ (2 * w)
    found = problem.E.power(2).T @ laplace.curvature(problem, mode.s)
    if np.any(w < 0) or not np.allclose(stated, found, rtol=SAME, atol=SAME * float(np.max(found, initial=0.0))):
        return None
    return w[w > 0]


def _scale_of(noise: Any, scale: Any, read: _AtMode) -> _DensityScale:
    """The scale, and the variance of an observation where squares have one weight. Raises OptionError."""
    for value, name in ((noise, "noise"), (scale, "scale")):
        if value is not None:
            require_number(value, name, "a number > 0", lambda number: number > 0)
    if noise is not None and scale is not None:
        raise OptionError(f"Expected noise or scale; got both, {noise} and {scale}. Leave one out.")
    w = read.weights
    equal = w is not None and len(w) > 0 and float(np.ptp(w)) <= SAME * float(w.max())
    weight = float(w[0]) if w is not None and equal else None
    if noise is not None:
        if weight is None:
            what = "squares have several weights, or stand in other forms" if read.exact else "losses are not squares"
            raise OptionError(
                f"Expected scale in place of noise, since {what}. The density is ∝ exp(−objective/scale); a square of "
                "weight w has noise variance scale/(2w)."
            )
        return _DensityScale(2 * weight * float(noise), float(noise), estimated=False)
    if scale is not None:
        return _DensityScale(float(scale), None if weight is None else float(scale) / (2 * weight), estimated=False)
    if not read.exact:
        return _DensityScale(1.0, None, estimated=False)
    count = 0 if w is None else len(w) - read.free
    if count <= 0 or not read.mode.value > 0:
        raise OptionError(
            "Expected noise or scale: it has no estimate without residuals, with as many variables as squares, or "
            "where squares stand in other forms than cp.sum_squares and cp.square."
        )
    estimate = 2 * read.mode.value / count
    return _DensityScale(estimate, None if weight is None else estimate / (2 * weight), estimated=True)


def _log_evidence(read: _AtMode, chosen: _DensityScale) -> float:
    """−J/T − ½ log det(I + VKV/R) + ½q log(2πT) − ½ log det P, and −½ log(πT/wᵢ) for each square."""
    T = chosen.scale
    found = -read.mode.value / T - 0.5 * read.system.log_det_theta
    found += 0.5 * read.free * log(2 * pi * T) - 0.5 * read.system.log_det_y
    if read.weights is not None:
        found -= 0.5 * float(np.sum(np.log(pi * T / read.weights)))
    return found
