"""The enclosure of the optimum of a spectral problem, with the full kernel matrix.

    P = sup φ(‖MAθ‖)  over  ‖θ‖ ≤ R, GᵀAθ = 0

With H = BK⁺, K = GᵀB, and M′ = M(I − HGᵀ), MAθ = M′Aθ for every feasible θ, so that P ≤ φ(R√λ_max(S)) for
S = M′QM′ᵀ. In Q = scale·BBᵀ + E the factor gives the first part, M′B = MBP, and E ⪰ 0 adds at most δ = ‖M′‖² tr(E): a
bound on λ_max(S) without a pass over the kernel. Where it does not suffice, S itself is formed if rows are few. If they
are many, one pass gives SX for X the leading left singular vectors of MBP: in a basis that begins with X,

    S = [XᵀSX  Rᵀ; R  D],  ‖D‖ ≤ c = σ²_max((I − XXᵀ)MBP) + δ:   λ_max(S) ≤ λ_max([α ‖R‖; ‖R‖ c]),  α = λ_max(XᵀSX),

where R = SX − X(XᵀSX) is the eigen-residual in the full kernel, so that δ counts to second order only.
"""

from __future__ import annotations

from math import hypot, inf, isfinite, sqrt
from typing import NamedTuple

import numpy as np

from kernelopt.certificate.gram import spans_everything
from kernelopt.certificate.report import FULL, Certificate
from kernelopt.compiler.canonical_form import PredictionLink
from kernelopt.compiler.iterate import Iterate, place
from kernelopt.factorization import FLOOR, Factor
from kernelopt.language.functions import Function
from kernelopt.spectral import eigenvalues
from kernelopt.spectral.eigenvalues import EPS, Constrained, Leading
from kernelopt.spectral.spectral_form import Numbers, SpectralForm
from kernelopt.support import clock
from kernelopt.support.types import Array

LARGEST = 2000  # rows up to which S is formed: 32 MB for S, and O(rows³) operations. Q is formed up to the same size
# Relative to the trace before deflation, ‖MB‖²: eigenvalues that are nearer to each other, or to zero, are within the
# rounding of a kernel matrix in floating point, and count as equal.
NEGLIGIBLE = 10 * FLOOR


class Solved(NamedTuple):
    """A spectral problem reduced by a factor, in the factor's units (Q of unit mean diagonal), and its solution."""

    form: SpectralForm
    numbers: Numbers
    factor: Factor
    side: Constrained
    top: Leading
    point: Iterate

    @property
    def unit(self) -> float:
        """R√scale: ‖MAθ‖ = unit·√λ."""
        return self.numbers.radius * sqrt(self.factor.scale)


def certify(solved: Solved, tol: float, abs_tol: float | None, may_pass: bool) -> Certificate:
    """The certificate of the point.

    With `may_pass`, a pass over the kernel is made if the gap does not close without it.
    """
    start = clock.now()
    left = what_is_left(solved)
    found = _assembled(solved, solved.top.bound + left, start)
    if may_pass and left and not found.closes(tol, abs_tol) and not solved.factor.is_projected:
        found = _assembled(solved, min(solved.top.bound + left, with_full_kernel(solved, left)), start)
    return found


def what_is_left(solved: Solved) -> float:
    """δ = ‖I − HGᵀ‖²‖M‖² tr(E), in units of the factor's scale; ‖M‖² ≤ ‖M‖₁‖M‖_∞."""
    link, factor = solved.form.link, solved.factor
    if spans_everything(link, factor):
        return 0.0
    sizes = abs(solved.numbers.M)
    norm = float(sizes.sum(axis=0).max()) * float(sizes.sum(axis=1).max())
    return norm * _tilt(solved) ** 2 * _trace_left(link, factor)


def _trace_left(link: PredictionLink, factor: Factor) -> float:
    """tr(E)/scale."""
    if factor.is_projected:
        return factor.residual * len(factor.B)
    known = np.einsum("ij,ij->i", factor.B, factor.B)
    return float(np.clip(link.rows.diagonal() / factor.scale - known, 0.0, None).sum())


def _tilt(solved: Solved) -> float:
    """max(1, ‖HGᵀ‖) ≥ ‖I − HGᵀ‖, since HGᵀ is a projection.

    It is 1 where the span of the constraints is invariant under Q.
    """
    G = solved.numbers.G.toarray()
    H = solved.factor.B @ solved.side.pseudoinverse
    if not G.shape[1]:
        return 1.0
    R1, R2 = (np.asarray(np.linalg.qr(part, mode="r")) for part in (H, G))
    return max(1.0, float(np.linalg.norm(R1 @ R2.T, 2)))


def with_full_kernel(solved: Solved, left: float) -> float:
    """The bound on λ_max(S)/scale from kernel values."""
    small = max(solved.numbers.M.shape) <= LARGEST
    return _of_whole_matrix(solved) if small else _of_residual(solved, left)


def _of_whole_matrix(solved: Solved) -> float:
    """λ_max(S)/scale, S formed with the H that Q itself implies, QG(GᵀQG)⁺: S = M(Q − HGᵀQ)Mᵀ."""
    M, G = solved.numbers.M, solved.numbers.G.toarray()
    Q = solved.form.link.rows.gram() / solved.factor.scale
    size = np.sqrt(np.clip(np.einsum("ij,ij->j", G, Q @ G), 0.0, None))
    G = np.divide(G, size, out=np.zeros_like(G), where=size > 0)
    # Leaving out small eigenvalues of GᵀQG keeps the bound valid: fewer constraints are deflated, and S is larger.
    Q -= Q @ G @ np.linalg.pinv(G.T @ Q @ G, rcond=NEGLIGIBLE, hermitian=True) @ (G.T @ Q)
    S = M @ (M @ Q).T
    return eigenvalues.eigenpairs((S + S.T) / 2, 1)[2]


def _of_residual(solved: Solved, left: float) -> float:
    """λ_max([α ‖R‖; ‖R‖ c]): one pass over the kernel for all leading vectors."""
    side, top, B = solved.side, solved.top, solved.factor.B
    M, G = solved.numbers.M, solved.numbers.G
    known = int(np.sum(top.values > NEGLIGIBLE * side.total))
    if not known:
        return inf
    q = known - 1 if known == len(top.values) < min(side.C.shape) else known
    X, _ = np.linalg.qr(side.C @ top.vectors[:, :q])
    H = B @ side.pseudoinverse
    Z = M.T @ X
    QZ = times_kernel(solved.form.link, Z - G @ (H.T @ Z)) / solved.factor.scale
    SX = M @ (QZ - H @ (G.T @ QZ))
    A = X.T @ SX
    alpha, residual = float(np.linalg.eigvalsh((A + A.T) / 2)[-1]), float(np.linalg.norm(SX - X @ A, 2))
    rest = side.C - X @ (X.T @ side.C)
    guess = float(top.values[q]) if q < len(top.values) else 0.0
    c = eigenvalues.upper_bound(eigenvalues.gram(rest), guess) + left
    return (alpha + c + hypot(alpha - c, 2 * residual)) / 2


def times_kernel(link: PredictionLink, Z: Array) -> Array:
    """QZ from kernel values, block by block."""
    rows = np.arange(len(link.rows))
    return link.rows.predictions(Function._of_rows(link.rows.kernel, *link.rows.expansion(rows, Z)))


def _assembled(solved: Solved, largest: float, start: float) -> Certificate:
    """The certificate from φ at the attained length, and at the length that `largest` ≥ λ_max(S)/scale bounds."""
    form, side, unit, factor = solved.form, solved.side, solved.unit, solved.factor
    value = form.objective_at
    attained, feasible = lengths(solved)
    bound = unit * sqrt(largest) if largest > 0 else 0.0
    errors = EPS * (4 * side.total + max(side.C.shape) * largest)
    at_zero, reached, most = value(0.0), value(feasible), value(bound)
    rounding = floor = 0.0
    if isfinite(unit):
        rounding = abs(value(hypot(bound, unit * sqrt(errors))) - most) + 8 * EPS * abs(most)
        floor = abs(value(hypot(feasible, unit * sqrt(NEGLIGIBLE * side.total))) - reached)
    assumptions = [f"kernel matrix projected: {factor.method}"] if factor.is_projected else []
    if feasible > bound:
        if abs(reached - most) > rounding + floor:
            assumptions.append("no bound: predictions from the kernel and from the factor differ")
        most = reached if abs(reached - most) <= rounding + floor else form.sign * inf
    most += form.sign * rounding if isfinite(most) else 0.0
    return Certificate(
        lower=min(reached, most), upper=max(reached, most), scope=FULL, ranks=((factor.rank, len(form.link.rows)),),
        assumptions=(), rests_on=tuple(assumptions), widened=abs(value(attained) - reached), rounding=rounding,
        floor=floor, at_zero=at_zero, maximize=form.sign > 0, seconds=clock.now() - start,
    )  # fmt: skip


def lengths(solved: Solved) -> tuple[float, float]:
    """‖MAθ‖ for the θ of the point, and a lower bound on it for a feasible θ nearby.

    Subtracting HGᵀAθ, which makes the equalities hold, shortens MAθ by at most ‖MH·GᵀAθ‖; then θ is scaled to ‖θ‖ ≤ R.
    """
    form, R = solved.form, solved.numbers.radius
    place(form.form, solved.point)
    attained = float(np.linalg.norm(np.asarray(form.argument.value)))
    violated = np.concatenate([np.zeros(0), *(np.ravel(e.value, order="F") for e in form.equalities)])
    norm = float(solved.point.t[0]) if form.form.norms else 0.0
    charged = max(attained - float(np.linalg.norm(solved.side.lift @ violated)), 0.0)
    return attained, charged * (R / norm if norm > R else 1.0)


def eigen_residual(form: SpectralForm, numbers: Numbers, point: Iterate) -> float:
    """‖Q(MᵀMu − Gη) − σ²u‖/‖QMᵀMu‖ in the full kernel, at the best η and σ², for u = Aθ.

    It is the residual of AᵀMᵀMAθ − AᵀGη = σ²θ, multiplied by A.
    """
    link = form.link
    u = point.u[0][np.unique(link.take, return_index=True)[1]]
    target = np.asarray(numbers.M.T @ (numbers.M @ u))
    images = times_kernel(link, np.column_stack([target, numbers.G.toarray()]))
    size = float(np.linalg.norm(images[:, 0]))
    if size == 0:
        return 0.0
    terms = np.column_stack([images[:, 1:], u])
    terms = terms / np.where(terms.any(axis=0), np.linalg.norm(terms, axis=0), 1.0)
    fitted = terms @ np.linalg.lstsq(terms, images[:, 0] / size, rcond=None)[0]
    return float(np.linalg.norm(images[:, 0] / size - fitted))
