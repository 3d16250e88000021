"""A primal-dual interior-point method in decimal arithmetic, for small cone programs.

    minimize    cᵀx
    subject to  Ex + f = 0,  s = Gx + h ∈ K         K of half-lines, second-order and exponential cones
    dual        maximize −hᵀz − fᵀy  subject to  Gᵀz + Eᵀy = c,  z ∈ K*

Directions follow Δz = −MΔs − z − σμ∇F(s), where M s = z: z/s on half-lines, the Nesterov-Todd scaling on second-order
cones, and a matrix with two secant equations on exponential cones. The infeasible start needs no phase 1.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal, getcontext
from math import log1p
from typing import Any

import numpy as np
from exact import ONE, ZERO

ITERATIONS = 150
SHARE = Decimal("1e-2")
NEAR = Decimal("1e6")
SHORT = Decimal("0.1")  # after a shorter prediction a step only centres, once
PACE = Decimal("0.1")  # complementarity does not fall far below the share of the first residual that is left
CENTRED = Decimal("1e-12")
SHORTEST = Decimal("1e-12")
CENTRAL = (Decimal("-0.827838399"), Decimal("0.805102002"), Decimal("1.290927713"))  # s = −∇F(s)


class Cone:
    def product(self, b, M):
        """GᵀMG of a block."""
        return b.G.T @ (M @ b.G)


class HalfLine(Cone):
    order = 1

    def centre(self, n):
        return [ONE] * n

    def inside(self, s):
        return s[0] > 0

    dual_inside = inside

    def gradient(self, s):
        return np.array([-1 / s[0]], dtype=object)

    def scaling(self, s, z, mu):
        return np.array([[z[0] / s[0]]], dtype=object)

    def longest(self, s, ds):
        return -s[0] / ds[0] if ds[0] < 0 else None


class SecondOrder(Cone):
    order = 2

    def centre(self, n):
        return [Decimal(2).sqrt()] + [ZERO] * (n - 1)

    @staticmethod
    def _form(s):
        """s₀² − ‖s₁‖², as a product, where no digits cancel."""
        length = (s[1:] @ s[1:]).sqrt() if len(s) > 1 else ZERO
        return (s[0] - length) * (s[0] + length)

    def inside(self, s):
        return s[0] > 0 and self._form(s) > 0

    dual_inside = inside

    def gradient(self, s):
        g = s * (2 / self._form(s))
        g[0] = -g[0]
        return g

    def scaling(self, s, z, mu):
        """(2vvᵀ − J)/η² with v = J w̄, w̄ = (s̄ + J z̄)/(2γ), γ² = (1 + s̄ᵀz̄)/2, η⁴ = sᵀJs/zᵀJz."""
        v, factor = self._scaling(s, z)
        M = 2 * np.multiply.outer(v, v)
        M[0, 0] -= 1
        for i in range(1, len(s)):
            M[i, i] += 1
        return M * factor

    def product(self, b, M):
        """GᵀMG from Gᵀv and GᵀJG."""
        v, factor = self._scaling(b.s, b.z)
        v = b.G.T @ v
        if b.indefinite is None:
            b.indefinite = b.G[1:].T @ b.G[1:] - np.multiply.outer(b.G[0], b.G[0])
        return (2 * np.multiply.outer(v, v) + b.indefinite) * factor

    def _scaling(self, s, z):
        root_s, root_z = self._form(s).sqrt(), self._form(z).sqrt()
        s_bar, v = s / root_s, z / root_z
        gamma = ((1 + s_bar @ v) / 2).sqrt()
        flipped = -s_bar
        flipped[0] = s_bar[0]
        return (v + flipped) / (2 * gamma), root_z / root_s

    def longest(self, s, ds):
        """The least t > 0 with form(s + t ds) = 0."""
        a, b, c = ds[0] ** 2 - ds[1:] @ ds[1:], s[0] * ds[0] - s[1:] @ ds[1:], self._form(s)
        root = b * b - a * c
        if root < 0:
            return None
        root = root.sqrt()
        q = -(b + root) if b >= 0 else -b + root
        found = [t for t in (q / a if a else None, c / q if q else None) if t is not None and t > 0]
        return min(found) if found else None


class Exponential(Cone):
    """y·exp(x/y) ≤ z, y > 0. F = −log ψ − log y − log z with ψ = y·log(z/y) − x."""

    order = 3

    def centre(self, n):
        return list(CENTRAL)

    def inside(self, s):
        x, y, z = s
        return y > 0 and z > 0 and y * (z / y).ln() > x

    def dual_inside(self, z):
        """u < 0, −u·exp(v/u) ≤ e·w."""
        u, v, w = z
        return u < 0 and w > 0 and (w / -u).ln() + 1 > v / u

    @staticmethod
    def _parts(s):
        x, y, z = s
        log = (z / y).ln()
        return y * log - x, np.array([-ONE, log - 1, y / z], dtype=object)

    def gradient(self, s):
        psi, d = self._parts(s)
        return -d / psi - np.array([ZERO, 1 / s[1], 1 / s[2]], dtype=object)

    def hessian(self, s):
        psi, d = self._parts(s)
        _, y, t = s
        second = np.array([[ZERO] * 3, [ZERO, -1 / y, 1 / t], [ZERO, 1 / t, -y / (t * t)]], dtype=object)
        B = np.multiply.outer(d, d) / psi**2 - second / psi
        B[1, 1] += 1 / y**2
        B[2, 2] += 1 / t**2
        return B

    def shadow(self, z):
        """s with −∇F(s) = z: with q = −1/uy, q + log(1 + q) = K = 1 − v/u + log(−w/u), by Newton from a float."""
        u, v, w = z
        K = 1 - v / u + (-w / u).ln()
        guess = 0.5 * float(K)
        for _ in range(60):  # q + log(1 + q) is concave, and its derivative lies between 1 and 2
            guess -= (guess + log1p(guess) - float(K)) / (1 + 1 / (1 + guess))
        q = Decimal(guess)
        for _ in range(3):
            q -= (q + (1 + q).ln() - K) * (1 + q) / (2 + q)
        y = -1 / (u * q)
        log = (-u * (1 + q) / w).ln()
        return np.array([y * log + 1 / u, y, (1 - u * y) / w], dtype=object)

    def distance(self, s, z):
        """(sᵀz/3)(s̃ᵀz̃/3) ≥ 1 for the shadows z̃ = −∇F(s) and −∇F(s̃) = z; 1 on the central path."""
        return (s @ z / 3) * (-self.gradient(s) @ self.shadow(z) / 3)

    def scaling(self, s, z, mu):
        """M with Ms = z and Ms̃ = z̃ (Tunçel 2001; Dahl and Andersen 2022): zzᵀ/3μ + δzδzᵀ/δsᵀδz + t·vvᵀ.

        δs = s − μs̃, δz = z − μz̃, v ⟂ s, s̃ of length 1, and t the size of μ∇²F on v.
        """
        mu = s @ z / 3
        H, z_shadow, s_shadow = self.hessian(s), -self.gradient(s), self.shadow(z)
        ds, dz = s - mu * s_shadow, z - mu * z_shadow
        if not ds @ dz > CENTRED * mu:
            return mu * H
        v = np.array([s[i - 2] * s_shadow[i - 1] - s[i - 1] * s_shadow[i - 2] for i in range(3)], dtype=object)
        v = v / (v @ v).sqrt()
        other = s_shadow @ z_shadow / 3
        Hs = H @ s_shadow
        rest = H - np.multiply.outer(z_shadow, z_shadow) / 3
        part = Hs - other * z_shadow
        size = s_shadow @ part
        if size > 0:
            rest = rest - np.multiply.outer(part, part) / size
        t = mu * max(v @ rest @ v, ZERO)
        if not t > 0:
            return mu * H
        return np.multiply.outer(z, z) / (3 * mu) + np.multiply.outer(dz, dz) / (ds @ dz) + t * np.multiply.outer(v, v)

    def longest(self, s, ds):
        return None  # found by trial


CONES = {"nonneg": HalfLine(), "soc": SecondOrder(), "exp": Exponential()}


@dataclass
class Block:
    """One cone: s = Gx[columns] + h."""

    cone: Any
    columns: Any
    G: Any
    h: Any
    s: Any
    z: Any
    indefinite: Any = None  # GᵀJG with the sign of −J, once it was asked for


@dataclass
class Point:
    """x with a multiplier for each cone of the data; `unit` is the size of the objective's data."""

    x: Any
    z: list
    unit: Decimal
    iterations: int


def _matrix(entries):
    columns = sorted({j for e in entries for j in e.terms})
    G = np.array([[e.terms.get(j, ZERO) for j in columns] for e in entries], dtype=object)
    return columns, G.reshape(len(entries), len(columns)), np.array([e.constant for e in entries], dtype=object)


def _power_of_ten(size):
    """10ᵏ near a number > 0."""
    return ONE.scaleb(size.adjusted())


def _scales(n, cones, rounds=6):
    """Powers of ten for columns and for cones that bring coefficients near 1."""
    data = [[(j, k, abs(a)) for e in entries for j, a in e.terms.items()] for k, (_, entries) in enumerate(cones)]
    column, row = [ONE] * n, [ONE] * len(cones)
    for _ in range(rounds):
        for k, entries in enumerate(data):
            size = max((a * column[j] for j, _, a in entries), default=ONE)
            row[k] = 1 / _power_of_ten(size)
        largest = [ZERO] * n
        for entries in data:
            for j, k, a in entries:
                largest[j] = max(largest[j], a * row[k] * column[j])
        for j in range(n):
            if largest[j]:
                column[j] /= _power_of_ten(largest[j].sqrt())
    return column, row


class Elimination:
    """PK = LU by rows."""

    def __init__(self, K):
        K, n = K.copy(), len(K)
        self.order = list(range(n))
        for k in range(n):
            best = max(range(k, n), key=lambda i: abs(K[i, k]))
            if best != k:
                K[[k, best]] = K[[best, k]]
                self.order[k], self.order[best] = self.order[best], self.order[k]
            below = [i for i in range(k + 1, n) if K[i, k]]
            across = [j for j in range(k + 1, n) if K[k, j]]
            if below:
                K[below, k] /= K[k, k]
                if across:
                    K[np.ix_(below, across)] -= np.multiply.outer(K[below, k], K[k, across])
        self.K = K

    def solve(self, right):
        K, n, x = self.K, len(self.K), right[self.order]
        for k in range(1, n):
            x[k] -= K[k, :k] @ x[:k]
        for k in reversed(range(n)):
            x[k] = (x[k] - (K[k, k + 1 :] @ x[k + 1 :] if k + 1 < n else ZERO)) / K[k, k]
        return x


class Method:
    """The data in units near 1, and the iterate."""

    def __init__(self, data, objective):
        cones = data.cones
        self.n = data.n
        c = np.array([objective.terms.get(j, ZERO) for j in range(self.n)], dtype=object)
        self.column, self.row = _scales(self.n, cones)
        c = c * np.array(self.column, dtype=object)
        sizes = [abs(e.constant) * r for (_, entries), r in zip(cones, self.row, strict=True) for e in entries]
        self.length = _power_of_ten(max(sizes)) if any(sizes) else ONE
        self.cost = _power_of_ten(max(abs(c))) if self.n and any(c) else ONE
        self.c = c / self.cost
        self.blocks, zero = [], []
        for (name, entries), r in zip(cones, self.row, strict=True):
            columns, G, h = _matrix(entries)
            G = G * (r * np.array([self.column[j] for j in columns], dtype=object))
            h = h * (r / self.length)
            if name == "zero":
                zero.append((columns, G, h))
                continue
            cone = CONES[name]
            s = np.array(cone.centre(len(h)), dtype=object)
            self.blocks.append(Block(cone, columns, G, h, s, -cone.gradient(s)))
        self.E = np.full((len(zero), self.n), ZERO, dtype=object)
        for i, (columns, G, _) in enumerate(zero):
            self.E[i, columns] = G[0]
        self.f = np.array([h[0] for *_, h in zero], dtype=object)
        self.x = np.full(self.n, ZERO, dtype=object)
        self.y = np.full(len(zero), ZERO, dtype=object)
        self.centred = False
        self.first = max(self.missed(), ONE)
        self.degree = sum(b.cone.order for b in self.blocks)

    # ---- residuals

    def primal(self):
        """Gx + h − s per block, and Ex + f."""
        return [b.G @ self.x[b.columns] + b.h - b.s if b.columns else b.h - b.s for b in self.blocks], (
            self.E @ self.x + self.f if len(self.f) else self.f
        )

    def dual(self):
        """c − Gᵀz − Eᵀy."""
        r = self.c - (self.E.T @ self.y if len(self.f) else 0)
        for b in self.blocks:
            if b.columns:
                r[b.columns] -= b.G.T @ b.z
        return r

    def missed(self):
        """The largest residual."""
        rp, re = self.primal()
        return max((abs(e) for r in [*rp, re, self.dual()] for e in r), default=ZERO)

    def mu(self):
        return sum((b.s @ b.z for b in self.blocks), ZERO) / max(self.degree, 1)

    # ---- steps

    def factor(self, mu):
        """The KKT matrix, eliminated, and M of every block. Flat directions get 10^(−0.7 digits) of their diagonal."""
        n, m = self.n, len(self.f)
        K = np.full((n + m, n + m), ZERO, dtype=object)
        scalings = []
        for b in self.blocks:
            M = b.cone.scaling(b.s, b.z, mu)
            scalings.append(M)
            if b.columns:
                K[np.ix_(b.columns, b.columns)] += b.cone.product(b, M)
        K[n:, :n] = self.E
        K[:n, n:] = self.E.T
        tiny = ONE.scaleb(-7 * getcontext().prec // 10)
        for i in range(n):
            K[i, i] += tiny * (K[i, i] + 1)
        for i in range(m):
            K[n + i, n + i] = -tiny
        return Elimination(K), scalings

    def direction(self, K, scalings, sigma_mu, share=ONE, keep=False):
        """(Δx, Δy, Δs, Δz) that remove a share of all residuals; `keep`: of them alone, complementarity stays."""
        rp, re = self.primal()
        rp, re, rd = [share * p for p in rp], share * re, share * self.dual()
        q = [
            np.full(len(b.s), ZERO, dtype=object) if keep else -b.z - sigma_mu * b.cone.gradient(b.s)
            for b in self.blocks
        ]
        right = -rd
        for b, M, p, qb in zip(self.blocks, scalings, rp, q, strict=True):
            if b.columns:
                right[b.columns] += b.G.T @ (qb - M @ p)
        found = K.solve(np.concatenate([right, -re]))
        dx, dy = found[: self.n], -found[self.n :]
        ds = [(b.G @ dx[b.columns] if b.columns else 0) + p for b, p in zip(self.blocks, rp, strict=True)]
        dz = [qb - M @ d for M, qb, d in zip(scalings, q, ds, strict=True)]
        return dx, dy, ds, dz

    def longest(self, ds, dz, fraction):
        """The largest step ≤ 1 that keeps s and z inside of their cones."""
        step = ONE
        for b, p, d in zip(self.blocks, ds, dz, strict=True):
            for t in (b.cone.longest(b.s, p), b.cone.longest(b.z, d)):
                if t is not None:
                    step = min(step, fraction * t)
        for b, p, d in zip(self.blocks, ds, dz, strict=True):
            if b.cone.order == 3:
                while not (b.cone.inside(b.s + step * p) and b.cone.dual_inside(b.z + step * d)):
                    step *= Decimal("0.8")
                    if step < Decimal("1e-20"):
                        return step
        return step

    def central(self, step, ds, dz):
        """Whether each exponential cone keeps a share of the mean complementarity, and is near the central path."""
        pairs = [(b.s + step * p, b.z + step * d, b.cone) for b, p, d in zip(self.blocks, ds, dz, strict=True)]
        mu = sum((s @ z for s, z, _ in pairs), ZERO) / max(self.degree, 1)
        return all(s @ z >= 3 * SHARE * mu and cone.distance(s, z) <= NEAR for s, z, cone in pairs if cone.order == 3)

    def run(self, accuracy, iterations=ITERATIONS):
        """Until the complementarity is `accuracy` of the objective, or nothing moves; the number of iterations."""
        count = 0
        with suppress(ArithmeticError):  # the iterate ran off to where digits end: there is no optimum
            for count in range(iterations):  # noqa: B007
                if self.finished(accuracy) or not self.iterate():
                    break
            for _ in range(3):
                self.restore()
        return count

    def iterate(self):
        """Predict, centre as far as the prediction asks for, and move; False where no step is left."""
        mu = self.mu()
        K, scalings = self.factor(mu)
        _, _, ds, dz = self.direction(K, scalings, ZERO)
        affine = self.longest(ds, dz, ONE)
        sigma = min(max((1 - affine) ** 2, Decimal("1e-4")), ONE / 2)
        self.centred = affine < SHORT and not self.centred
        share = ONE
        if self.centred:
            sigma, share = ONE, ZERO
        target = max(sigma * mu, PACE * self.missed() / self.first)
        dx, dy, ds, dz = self.direction(K, scalings, target, share)
        step = self.longest(ds, dz, Decimal("0.97") if affine < Decimal("0.99") else Decimal("0.999"))
        while step > SHORTEST and not self.central(step, ds, dz):
            step *= Decimal("0.7")
        if step <= SHORTEST:
            return False
        self.move(step, dx, dy, ds, dz)
        return True

    def move(self, step, dx, dy, ds, dz):
        self.x = self.x + step * dx
        self.y = self.y + step * dy
        for b, p, d in zip(self.blocks, ds, dz, strict=True):
            b.s = b.s + step * p
            b.z = b.z + step * d

    def restore(self):
        """Remove the residuals at this complementarity, as far as the cones allow."""
        K, scalings = self.factor(self.mu())
        dx, dy, ds, dz = self.direction(K, scalings, ZERO, keep=True)
        step = self.longest(ds, dz, Decimal("0.9"))
        self.move(step, dx, dy, ds, dz)

    def finished(self, accuracy):
        gap = self.mu() * self.degree
        scale = abs(self.c @ self.x) if self.n else ZERO
        return gap <= accuracy * max(scale, Decimal("1e-20")) and self.missed() <= accuracy * Decimal("1e-6")

    def point(self, data, count):
        """In the units of the data."""
        x = self.x * np.array(self.column, dtype=object) * self.length
        blocks, equalities = iter(self.blocks), iter(self.y)
        z = [
            np.array([next(equalities)], dtype=object) * (r * self.cost)
            if name == "zero"
            else next(blocks).z * (r * self.cost)
            for (name, _), r in zip(data.cones, self.row, strict=True)
        ]
        return Point(x, z, self.cost * self.length, count)


def solve(data, objective, accuracy=Decimal("1e-24")):
    """A `Point` of `ConeData` with an affine objective."""
    method = Method(data, objective)
    count = method.run(accuracy)
    return method.point(data, count)
