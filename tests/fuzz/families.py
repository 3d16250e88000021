"""Random problems of kinds that fixed examples missed: a family is a function of a generator of random numbers.

Each is small enough for `oracle.optimum`, which encloses its optimum in the units in which it is stated.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import cvxpy as cp
import numpy as np
import scipy.sparse as sp

import kernelopt as ko
from kernelopt import losses

# Names, elementwise (y, f), and whether y are labels.
LOSSES = {
    "squared error": (losses.squared_error, False),
    "absolute error": (losses.absolute_error, False),
    "huber": (lambda y, f: losses.huber(y, f, 0.4), False),
    "pinball": (lambda y, f: losses.pinball(y, f, 0.3), False),
    "epsilon insensitive": (lambda y, f: losses.epsilon_insensitive(y, f, 0.15), False),
    "hinge": (losses.hinge, True),
    "squared hinge": (losses.squared_hinge, True),
    "logistic": (losses.log_loss, True),
    "exponential": (lambda y, f: cp.exp(-cp.multiply(y, f)), True),
    "power": (lambda y, f: cp.power(cp.abs(f - y), 1.5), False),
    "poisson": (lambda y, f: losses.poisson(np.round(np.abs(2 * y)), f), False),
}
QUADRATIC = ["squared error", "absolute error", "huber", "pinball", "epsilon insensitive", "hinge", "squared hinge"]


@dataclass
class Stated:
    """A problem to solve with `options`, after the runs of `before`, and what the oracle reads for it.

    statement, bind : another problem that says the same, and what puts the answer's values there.
    restricted : it has a rank limit of its own. choices : values of integer variables, of which the best one counts.
    """

    problem: ko.Problem
    options: dict = field(default_factory=dict)
    before: Callable[[ko.Problem], None] | None = None
    statement: ko.Problem | None = None
    bind: Callable[[], None] | None = None
    restricted: bool = False
    choices: list | None = None
    precision: int = 57
    shown: str = ""


@dataclass
class Parts:
    """What a random problem is made of."""

    rng: Any
    X: Any
    y: Any
    theta: ko.Theta
    b: cp.Variable
    intercept: bool
    loss: str
    weights: Any
    strength: float
    penalty: str

    @property
    def f(self):
        return self.theta(self.X) + self.b if self.intercept else self.theta(self.X)

    def losses(self, y=None, f=None):
        term, labels = LOSSES[self.loss]
        y = self.y if y is None else y
        return term(np.where(y > 0, 1.0, -1.0) if labels else y, self.f if f is None else f)

    def penalized(self, strength=None):
        """(the penalty in the objective, constraints)."""
        lam = self.strength if strength is None else strength
        square, ball = lam * ko.sum_squares(self.theta), [ko.norm(self.theta) <= 1.5]
        return {
            "squared": (square, []),
            "unsquared": (lam * ko.norm(self.theta), []),
            "ball": (0.0, ball),
            "squared and ball": (square, ball),
        }[self.penalty]

    def __str__(self):
        kind = f"{self.theta.kernel!r}, N={len(self.X)}, d={self.X.shape[1]}"
        return f"{self.loss}, {self.penalty}, {kind}" + (", intercept" if self.intercept else "")


def draw(rng, *, kernel=None, names=None, penalties=("squared", "unsquared", "ball", "squared and ball"), most=5):
    n, d = int(rng.integers(2, most + 1)), int(rng.integers(1, 3))
    X = rng.uniform(-1, 1, size=(n, d))
    kernels = [
        ko.kernels.Gaussian(sigma=float(10 ** rng.uniform(-0.7, 0.3))),
        ko.kernels.Gaussian(sigma=float(10 ** rng.uniform(-0.7, 0.3))),
        ko.kernels.Laplacian(sigma=float(10 ** rng.uniform(-0.7, 0.3))),
        ko.kernels.Linear(),
        ko.kernels.Polynomial(degree=int(rng.integers(2, 4)), offset=float(rng.uniform(0.2, 2))),
    ]
    chosen = kernel or kernels[rng.integers(len(kernels))]
    return Parts(
        rng=rng,
        X=X,
        y=rng.normal(size=n),
        theta=ko.Theta(chosen),
        b=cp.Variable(name="b"),
        intercept=bool(rng.random() < 0.4),
        loss=str(rng.choice(names or list(LOSSES))),
        weights=rng.uniform(0.2, 2, size=n),
        strength=float(10 ** rng.uniform(-3, 1)),
        penalty=str(rng.choice(penalties)),
    )


def with_solver(rng, options=None, share=0.3):
    """Options with a solver by name, now and then."""
    options = dict(options or {})
    if rng.random() < share:
        options["solver"] = str(rng.choice(["CLARABEL", "INTERIOR_POINT", "AUGMENTED_LAGRANGIAN", "NEWTON", "SCS"]))
    return options


def stated(parts, objective, constraints, note="", goal=cp.Minimize, **others):
    options = others.pop("options", None)
    options = with_solver(parts.rng) if options is None else options
    shown = f"{parts}{', ' if note else ''}{note}, {options}"
    return Stated(ko.Problem(goal(objective), constraints), options, shown=shown, **others)


# ---------------------------------------------------------------- scales


def far_apart(rng):
    """Numbers of one problem up to 16 orders apart: weights, a penalty, rows, coefficients in atoms and cones."""
    p = draw(rng)
    size = float(10.0 ** (rng.integers(6, 17) * rng.choice([-1, 1])))
    kinds = [
        "one weight",
        "all weights",
        "inside",
        "alone",
        "row",
        "slope",
        "strength",
        "cone",
        "prices",
        "interpolation",
    ]
    kind = str(rng.choice(kinds))
    f, b, weights, strength = p.f, p.b, p.weights.copy(), p.strength
    extra: Any = 0.0
    constraints: list = []
    if kind == "one weight":
        weights[0] *= size
    if kind == "all weights":
        weights = weights * size
    if kind == "strength":
        strength = strength * size
    if kind == "inside":
        extra = cp.abs(size * f[0]) / size
    if kind == "alone":  # the only use of its row
        weights[0] = 0.0
        extra = cp.abs(size * f[0] - 0.3 * size) / size + cp.maximum(f[-1], -f[-1] - 1)
    if kind == "row":
        constraints = [size * f[0] <= 0.3 * size, cp.abs(f[-1]) <= 1]
    if kind == "slope":
        extra = size * b + cp.abs(b) * 2 * size if p.intercept else size * f[0] + 2 * size * cp.abs(f[0] - 0.5)
    if kind == "cone":
        constraints = [cp.norm(cp.hstack([size * b, f[0]])) <= 1]
        extra = -b
    if kind == "prices":  # variables of their own in tiny and in large terms
        extra = size * cp.abs(b - 1) + 0.5 * min(size, 1.0) * b
    if kind == "interpolation":  # an exact penalty
        extra = abs(size) * cp.norm1(f - p.y)
    penalty, more = p.penalized(strength)
    return stated(p, weights @ p.losses() + extra + penalty, constraints + more, f"{kind} × {size:.0e}")


def zeros(rng):
    """Weights, constants and Parameters of 0."""
    p = draw(rng)
    n = len(p.X)
    weights = p.weights * (rng.random(n) < (0.0 if rng.random() < 0.15 else 0.5))
    lam = cp.Parameter(nonneg=True, value=0.0 if rng.random() < 0.5 else p.strength)
    note = f"λ = {lam.value:.2g}, weights {np.count_nonzero(weights)} of {n}"
    if rng.random() < 0.4:
        weights = cp.Parameter(n, nonneg=True, value=weights)
    penalty, constraints = p.penalized(lam)
    nothing = cp.Parameter(value=0.0) * p.f[0] if rng.random() < 0.3 else 0.0 * p.f[0]
    return stated(p, weights @ p.losses() + penalty + nothing, constraints, note)


def zero_strength(rng):
    """λ = 0 as a Parameter, on losses that attain their optimum."""
    p = draw(rng, names=QUADRATIC, penalties=("squared", "unsquared"))
    lam = cp.Parameter(nonneg=True, value=0.0)
    penalty, constraints = p.penalized(lam)
    return stated(p, p.weights @ p.losses() + penalty, constraints)


def columns(rng):
    """Columns of X at 1e8 and 1e-8."""
    linear = rng.random() < 0.6
    p = draw(rng, kernel=ko.kernels.Linear() if linear else ko.kernels.Polynomial(degree=2, offset=1.0), most=4)
    scales = 10.0 ** rng.choice([-8, 0, 8], size=p.X.shape[1])
    p.X = p.X * scales
    penalty, constraints = p.penalized()
    return stated(p, p.weights @ p.losses() + penalty, constraints, f"columns × {scales}")


# ---------------------------------------------------------------- forms of statements


def negated(rng):
    """Maximize, negative multiples, `>=` with them, and double signs."""
    p = draw(rng)
    penalty, constraints = p.penalized()
    convex = p.weights @ p.losses()
    kind = str(rng.choice(["-0.5*loss", "-(-1)*loss", "constraint", "both"]))
    goal, objective = cp.Minimize, convex + penalty
    if kind in ("-0.5*loss", "both"):
        goal, objective = cp.Maximize, -0.5 * convex - penalty
    if kind == "-(-1)*loss":
        objective = -((-1) * convex) + penalty
    if kind in ("constraint", "both"):
        constraints = [*constraints, -2 * cp.abs(p.f[0]) >= -0.4, 1 - cp.square(p.f[-1]) >= -3]
    return stated(p, objective, constraints, kind, goal=goal)


def integers(rng):
    """Integer and boolean variables whose values are 0 and 1 (or −1 and 2)."""
    p = draw(rng, most=4, names=QUADRATIC)
    penalty, constraints = p.penalized()
    boolean = rng.random() < 0.6
    z = cp.Variable(boolean=True) if boolean else cp.Variable(integer=True)
    price = float(rng.choice([-1, 1]) * 10.0 ** rng.uniform(-2, 1))
    kind = str(rng.choice(["price", "switch", "shift"]))
    objective = p.weights @ p.losses(f=p.f + z if kind == "shift" else None) + penalty + price * z
    if kind == "switch":
        constraints = [*constraints, cp.abs(p.f[0]) <= 3 * (z + (0 if boolean else 1))]
    if not boolean:
        constraints = [*constraints, z >= -1, z <= 2]
    options = {} if rng.random() < 0.8 else {"max_rank": 1}
    values = None if boolean else [{z: value} for value in (-1.0, 0.0, 1.0, 2.0)]
    note = f"{'boolean' if boolean else 'integer'}, {kind}, price {price:.2g}"
    return stated(p, objective, constraints, note, options=options, restricted=bool(options), choices=values)


def no_norm(rng):
    """θ without a norm: interpolation, least squares, absolute errors."""
    p = draw(rng, names=QUADRATIC)
    if rng.random() < 0.3:
        p.X = np.concatenate([p.X, p.X[:1]])
        p.y, p.weights = np.append(p.y, -p.y[0]), np.append(p.weights, 1.0)
    constraints = []
    if rng.random() < 0.3:
        constraints = [p.f[0] <= p.y[0] - 0.1] if rng.random() < 0.5 else [cp.sum(p.f) == 1]
    return stated(p, p.weights @ p.losses(), constraints)


def opposite_labels(rng):
    """Repeated rows with labels that contradict each other."""
    p = draw(rng, most=4)
    again = rng.integers(len(p.X), size=int(rng.integers(1, 4)))
    p.X, p.y = np.concatenate([p.X, p.X[again]]), np.concatenate([p.y, -p.y[again]])
    p.weights = np.concatenate([p.weights, p.weights[again] if rng.random() < 0.5 else rng.uniform(0.2, 2, len(again))])
    penalty, constraints = p.penalized()
    return stated(p, p.weights @ p.losses() + penalty, constraints, f"{len(again)} rows again")


def written_out(rng):
    """Losses written in cvxpy's atoms, on single rows and on all of them."""
    p = draw(rng)
    f, y = p.f, p.y
    r = y - f
    kinds: dict[str, Callable[[], Any]] = {
        "expectile": lambda: cp.sum(0.75 * cp.square(cp.pos(r)) + 0.25 * cp.square(cp.pos(-r))),
        "asymmetric": lambda: cp.sum(cp.maximum(2 * cp.pos(-r), 0.5 * cp.pos(r))),
        "worst": lambda: cp.norm_inf(r),
        "length": lambda: cp.norm(r),
        "sum of lengths": lambda: cp.norm(r[:1]) + cp.norm1(r),
        "largest": lambda: cp.sum_largest(cp.abs(r), min(2, len(y))),
        "log-sum-exp": lambda: cp.log_sum_exp(f) - cp.sum(f) / len(y),
        "quadratic over linear": lambda: cp.quad_over_lin(r, 0.5),
        "divergence": lambda: cp.sum(cp.kl_div(f + 3, np.abs(y) + 0.1)),
        "entropy": lambda: -cp.sum(cp.entr(f + 2)),
        "barrier": lambda: -cp.sum(cp.log(f + 3)),
        "fourth power": lambda: cp.sum(cp.power(r, 4)),
        "variation": lambda: cp.norm1(cp.diff(f)) + cp.sum_squares(r),
        "quantile by max": lambda: cp.sum(cp.maximum(0.3 * r, -0.7 * r)),
        "log-cosh": lambda: cp.sum(cp.logistic(2 * r) - r),
        "inverse": lambda: cp.sum(cp.inv_pos(f + 3)),
    }
    kind = str(rng.choice(list(kinds)))
    penalty, constraints = p.penalized()
    p.loss = kind
    return stated(p, kinds[kind]() + penalty, constraints)


def several_norms(rng):
    """Several norms of one θ: of itself, of its distance to a function, squared and not, in constraints."""
    p = draw(rng, most=4)
    f0 = ko.Function(p.theta.kernel, p.X[:2] + 0.1, rng.normal(size=len(p.X[:2])))
    kind = str(rng.choice(["distance", "distance and norm", "two balls", "norm and square", "max"]))
    objective, constraints = p.weights @ p.losses(), []
    if kind in ("distance", "distance and norm"):
        objective = objective + p.strength * cp.square(ko.norm(p.theta - f0))
    if kind == "distance and norm":
        objective = objective + 0.3 * ko.norm(p.theta)
    if kind == "two balls":
        constraints = [ko.norm(p.theta) <= 1.5, ko.norm(p.theta - f0) <= 0.7 + f0.norm]
    if kind == "norm and square":
        objective = objective + p.strength * ko.norm(p.theta) + 0.1 * ko.sum_squares(p.theta)
    if kind == "max":
        objective = objective + cp.maximum(ko.norm(p.theta), 2 * ko.norm(p.theta - f0))
    return stated(p, objective, constraints, kind)


def two_thetas(rng):
    """Two θ with kernels of their own in one problem."""
    p = draw(rng, most=4)
    other = ko.Theta(ko.kernels.Linear() if rng.random() < 0.5 else ko.kernels.Gaussian(sigma=0.3))
    penalty, constraints = p.penalized()
    objective = p.weights @ p.losses(f=p.f + other(p.X)) + penalty
    if rng.random() < 0.5:
        objective = objective + p.strength * ko.norm(other)
    else:
        constraints = [*constraints, ko.norm(other) <= 1]
    return stated(p, objective, constraints, repr(other.kernel))


def outputs(rng):
    """Several outputs, the Frobenius norm: multinomial, Crammer and Singer, squares; single columns and mixtures."""
    p = draw(rng, most=3)
    K = int(rng.integers(2, 4))
    theta = ko.Theta(p.theta.kernel, outputs=K)
    F, n = theta(p.X), len(p.X)
    kinds: dict[str, Callable[[], Any]] = {
        "multinomial": lambda: cp.sum(losses.multinomial(rng.integers(K, size=n), F)),
        "Crammer and Singer": lambda: cp.sum(losses.crammer_singer(rng.integers(K, size=n), F)),
        "squares": lambda: cp.sum_squares(F - rng.normal(size=(n, K))),
        "columns": lambda: cp.sum(losses.pinball(p.y, F[:, 0], 0.2)) + cp.sum(losses.absolute_error(p.y, F[:, 1])),
        "mixture": lambda: cp.sum_squares(p.y - (theta @ rng.normal(size=K))(p.X)) + cp.norm1(F[:, 0]),
    }
    kind = str(rng.choice(list(kinds)))
    p.loss, p.theta = kind, theta
    objective, constraints = kinds[kind](), []
    if rng.random() < 0.6:
        objective = objective + p.strength * ko.sum_squares(theta)
    elif rng.random() < 0.5:
        objective = objective + p.strength * ko.norm(theta, "fro")
    else:
        constraints = [ko.norm(theta, "fro") <= 1.5]
    return stated(p, objective, constraints, f"K={K}")


# ---------------------------------------------------------------- derivatives


def smooth_kernel(rng):
    if rng.random() < 0.8:
        return ko.kernels.Gaussian(sigma=float(10 ** rng.uniform(-0.3, 0.3)))
    return ko.kernels.Polynomial(degree=3, offset=1.0)


def derivative_rows(rng):
    """Slopes and curvatures in losses and constraints."""
    p = draw(rng, kernel=smooth_kernel(rng), most=4)
    A = ko.FeatureMatrix(rng.uniform(-1, 1, size=(int(rng.integers(1, 4)), p.X.shape[1])), p.theta.kernel)
    kind = str(rng.choice(["monotone", "convex", "slopes observed", "modulus"]))
    penalty, constraints = p.penalized()
    objective = p.weights @ p.losses() + penalty
    slopes = A.derivative(0) @ p.theta
    if kind == "monotone":
        constraints = [*constraints, slopes >= 0]
    if kind == "convex":
        constraints = [*constraints, A.derivative((0, 0)) @ p.theta >= -0.1]
    if kind == "slopes observed":
        objective = objective + cp.sum(cp.abs(slopes - 0.5))
    if kind == "modulus":
        eta = 0.1 * np.ones(len(A.X))
        constraints = [*constraints, eta * ko.norm(p.theta) <= slopes + 1]
    return stated(p, objective, constraints, kind)


def collocation(rng):
    """A differential equation at 5 to 40 points, as equalities: f″ + f = 0 or f′ = −f."""
    p = draw(rng, kernel=ko.kernels.Gaussian(sigma=1.0), penalties=("squared", "squared and ball"), most=4)
    count = int(rng.integers(5, 13)) if rng.random() < 0.97 else int(rng.integers(13, 41))
    p.X = rng.uniform(0, 6, size=(len(p.X), 1))
    p.y, p.intercept, p.penalty = np.sin(p.X[:, 0] + 0.3), False, "squared"
    C = ko.FeatureMatrix(np.linspace(0, 2 * np.pi, count)[:, None], p.theta.kernel)
    order = (0, 0) if rng.random() < 0.7 else 0
    equation = C.derivative(order) @ p.theta + C @ p.theta
    penalty, _ = p.penalized(1e-3)
    precision = 57 if count < 13 else 114
    note = f"{count} points, order {order}"
    return stated(p, p.weights @ p.losses() + penalty, [equation == 0], note, precision=precision)


def functionals(rng):
    """Rows W @ A, sums and multiples of rows, of derivatives too, in losses and constraints; beside points or alone."""
    p = draw(rng, kernel=smooth_kernel(rng) if rng.random() < 0.5 else None, most=4)
    smooth = p.theta.kernel.domain.columns(p.X) and not isinstance(p.theta.kernel, ko.kernels.Laplacian)
    count = len(p.X)
    A = ko.FeatureMatrix(rng.uniform(-1, 1, size=(int(rng.integers(2, 7)), p.X.shape[1])), p.theta.kernel)
    W = rng.normal(size=(count, len(A))) * 10.0 ** rng.choice([-6, 0, 0, 0, 4])
    if rng.random() < 0.3:
        W = np.where(rng.random(W.shape) < 0.5, 0.0, np.round(W))
    rows = (sp.csr_array(W) if rng.random() < 0.5 else W) @ A
    kind = str(rng.choice(["means", "differences", "sums with points", "derivatives" if smooth else "means"]))
    if kind == "differences":
        rows = rows - 0.5 * rows[::-1]
    if kind == "sums with points":
        rows = rows + ko.FeatureMatrix(p.X, p.theta.kernel)
    if kind == "derivatives":
        rows = rows + W @ A.derivative(0)
    f = rows @ p.theta + (p.b if p.intercept else 0.0)
    penalty, constraints = p.penalized()
    objective = p.weights @ p.losses(f=f) + penalty
    if rng.random() < 0.4:
        objective = objective + p.weights @ p.losses()
    if rng.random() < 0.4:
        constraints = [*constraints, (np.ones((1, len(A))) @ A) @ p.theta <= 0.1]
    return stated(p, objective, constraints, f"{kind}, largest weight {np.abs(W).max():.1g}")


# ---------------------------------------------------------------- how it is solved


def again(rng):
    """A second solve of one Problem, after an infeasible one, a limit, or another value of a Parameter."""
    p = draw(rng)
    lam, level = cp.Parameter(nonneg=True, value=p.strength), cp.Parameter(value=0.3)
    penalty, constraints = p.penalized(lam)
    objective = p.weights @ p.losses() + penalty
    problem_constraints = [*constraints, p.theta(p.X[:1]) <= level, p.theta(p.X[:1]) >= -0.5]
    kind = str(rng.choice(["infeasible", "max_rank", "time limit", "max_iter", "another λ", "λ = 0", "far level"]))

    def before(problem):
        good = lam.value, level.value
        options: dict[str, Any] = {}
        if kind == "infeasible":
            level.value = -1.0
        if kind == "max_rank":
            options["max_rank"] = 1
        if kind == "time limit":
            options["time_limit"] = 1e-6
        if kind == "max_iter":
            options |= {"solver": "CLARABEL", "max_iter": 2}
        if kind == "another λ":
            lam.value = 1e3 * good[0]
        if kind == "λ = 0":
            lam.value = 0.0
        if kind == "far level":
            level.value = 1e9
        with suppress(ko.errors.KernelOptError):
            problem.solve(**options)
        lam.value, level.value = good

    return stated(p, objective, problem_constraints, f"after {kind}", before=before)


def smooth_loss(rng):
    """A `SmoothLoss`; the oracle reads its twin in cvxpy's atoms."""
    p = draw(rng, names=["squared error"], penalties=("squared", "squared and ball", "unsquared"))

    def sigmoid(t):
        return 1 / (1 + np.exp(-np.clip(t, -700, 700)))

    kinds = {
        "softplus": (
            ko.SmoothLoss(
                lambda u, y: np.logaddexp(0, u - y),
                lambda u, y: sigmoid(u - y),
                lambda u, y: sigmoid(u - y) * sigmoid(y - u),
            ),
            lambda u, y: cp.logistic(u - y),
        ),
        "square": (
            ko.SmoothLoss(lambda u, y: (u - y) ** 2, lambda u, y: 2 * (u - y), lambda u, y: 2 + 0 * u),
            lambda u, y: cp.square(u - y),
        ),
        "poisson": (
            ko.SmoothLoss(lambda u, y: np.exp(u) - y * u, lambda u, y: np.exp(u) - y, lambda u, y: np.exp(u)),
            lambda u, y: cp.exp(u) - cp.multiply(y, u),
        ),
        "logarithm": (
            ko.SmoothLoss(
                lambda u, y: -np.log(u + 3),
                lambda u, y: -1 / (u + 3),
                lambda u, y: (u + 3) ** -2.0,
                domain=(-3, np.inf),
            ),
            lambda u, y: -cp.log(u + 3),
        ),
    }
    kind = str(rng.choice(list(kinds)))
    loss, atom = kinds[kind]
    extra = str(rng.choice(["", "absolute errors", "bounds"]))
    made = []
    for number, theta in enumerate((p.theta, ko.Theta(p.theta.kernel))):
        b = p.b if number == 0 else cp.Variable(name="b")
        f = theta(p.X) + b if p.intercept else theta(p.X)
        y = np.abs(p.y) if kind == "poisson" else p.y
        first = loss(f, y) if number == 0 else atom(f, y)
        q = Parts(p.rng, p.X, p.y, theta, b, p.intercept, p.loss, p.weights, p.strength, p.penalty)
        penalty, constraints = q.penalized()
        objective = p.weights @ first + penalty + (cp.square(b) if p.intercept else 0.0)
        if extra == "absolute errors":
            objective = objective + cp.sum(cp.abs(f - p.y))
        if extra == "bounds":
            constraints = [*constraints, theta(p.X) <= 0.5, theta(p.X) >= -0.5]
        made.append((objective, constraints, theta, b))
    (objective, constraints, _, _), (other, others, twin, b) = made
    p.loss = kind

    def bind():
        twin.value = p.theta.value
        if p.b.value is not None:
            b.value = p.b.value

    options = {} if rng.random() < 0.7 else {"solver": str(rng.choice(["NEWTON", "INTERIOR_POINT"]))}
    return stated(
        p, objective, constraints, extra, options=options, statement=ko.Problem(cp.Minimize(other), others), bind=bind
    )


def survival(rng):
    """Partial likelihoods, with ties, censored rows and rows never at risk; for the oracle, as log-sum-exp."""
    p = draw(rng, most=4)
    n = len(p.X)
    time, event = rng.integers(0, 4, size=n).astype(float), rng.random(n) < 0.7
    event[rng.integers(n)] = True
    f, (penalty, constraints) = p.f, p.penalized()
    if rng.random() < 0.3:
        constraints = [*constraints, f[0] - f[-1] <= 0.1]
    extra = p.strength * cp.square(p.b) if p.intercept else 0.0
    written = sum(cp.log_sum_exp(f[np.flatnonzero(time >= time[i])]) - f[i] for i in np.flatnonzero(event).tolist())
    objective, other = (loss + extra + penalty for loss in (losses.cox(time, event, f), written))
    note = f"times {time}, events {event}"
    return stated(p, objective, constraints, note, statement=ko.Problem(cp.Minimize(other), constraints))


def low_rank(rng):
    """`max_rank` below the rank of Q, or a coarse `rank_tol`."""
    p = draw(rng, kernel=ko.kernels.Gaussian(sigma=float(10 ** rng.uniform(-0.7, 0.3))))
    penalty, constraints = p.penalized()
    if rng.random() < 0.3:
        constraints = [*constraints, p.f[0] == 0.2]
    options = {"max_rank": int(rng.integers(1, 3))} if rng.random() < 0.7 else {"rank_tol": 0.3}
    if rng.random() < 0.3:
        penalty, constraints = 0.0, []
    return stated(p, p.weights @ p.losses() + penalty, constraints, options=options, restricted=True)


def single_precision(rng):
    """B stored in float32."""
    p = draw(rng)
    penalty, constraints = p.penalized()
    options = {"dtype": "float32", "factorization": "streamed"}
    return stated(p, p.weights @ p.losses() + penalty, constraints, options=options)


FAMILIES = {
    "far apart": far_apart,
    "zeros": zeros,
    "zero strength": zero_strength,
    "columns": columns,
    "negated": negated,
    "integers": integers,
    "no norm": no_norm,
    "opposite labels": opposite_labels,
    "written out": written_out,
    "several norms": several_norms,
    "two thetas": two_thetas,
    "outputs": outputs,
    "derivative rows": derivative_rows,
    "collocation": collocation,
    "functionals": functionals,
    "again": again,
    "smooth loss": smooth_loss,
    "survival": survival,
    "low rank": low_rank,
    "single precision": single_precision,
}
