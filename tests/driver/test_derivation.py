"""derivation() tells the reduction and the proof in the problem's own formulas, with the certificate's numbers."""

import pickle
import re
from html import unescape
from html.parser import HTMLParser

import cvxpy as cp
import numpy as np
import pytest
from inside import reduction_of

import kernelopt as ko
from kernelopt.certificate.multipliers import lengths_of
from kernelopt.errors import DataTypeError, OptionError
from kernelopt.kernels import Gaussian, Linear
from kernelopt.language import latex

X = np.linspace(0, 6, 30)[:, None]
y = np.sin(X[:, 0]) + 0.3 * np.random.default_rng(0).standard_t(2, size=30)
TITLES = [
    "The stated problem", "Where θ enters", "The conditions of the representer theorem", "The factor of Q = AAᵀ",
    "The reduced problem", "The dual point", "The bound",
]  # fmt: skip
# Commands that LaTeX knows with amsmath, and no other package.
KNOWN = {
    "alpha", "approx", "backslash", "begin", "cdot", "end", "ensuremath", "frac", "geq", "in", "inf", "infty", "item",
    "kappa", "lambda", "langle", "ldots", "left", "leq", "mathbf", "mathrm", "mathtt", "max", "mu", "nu", "odot",
    "operatorname", "perp", "quad", "rangle", "right", "section", "sigma", "sqrt", "subsection", "sum", "text",
    "textasciicircum", "textbackslash", "texttt", "theta", "times", "top",
}  # fmt: skip


def robust():
    theta, b, lam = ko.Theta(Gaussian(sigma=1.0)), cp.Variable(name="b"), cp.Parameter(pos=True, value=0.5, name="λ")
    f = theta(X) + b
    loss = cp.sum(ko.losses.absolute_error(y, f))
    return ko.Problem(cp.Minimize(loss + lam * ko.sum_squares(theta)), [f <= 1.1])


def concave():
    theta = ko.Theta(Gaussian(sigma=1.0), name="g")
    return ko.Problem(cp.Maximize(cp.sum(cp.minimum(theta(X), y)) - 2 * ko.norm(theta)), [ko.norm(theta) <= 3])


def several():
    thetas = [ko.Theta(Gaussian(sigma=s)) for s in (0.1, 1.0, 10.0)]
    return ko.Problem(cp.Minimize(cp.sum_squares(y - sum(t(X) for t in thetas)) + 2 * sum(ko.norm(t) for t in thetas)))


def mixed():
    """Two named θs, one with outputs and several norms, two feature matrices, and a variable w."""
    f, g, w = (
        ko.Theta(Gaussian(sigma=1.0), name="f"),
        ko.Theta(Linear(), outputs=2, name="coefs"),
        cp.Variable(name="w"),
    )
    loss = cp.sum_squares(y - f(X) - w) + cp.sum_squares(np.c_[y, -y] - g(X))
    penalty = ko.sum_squares(f) + ko.norm(g, 2) + ko.sum_squares(g)
    return ko.Problem(cp.Minimize(loss + penalty), [f(X[:4] + 0.1) >= -1, cp.abs(w) <= 2])


def shifted():
    theta, f0 = ko.Theta(Gaussian(sigma=1.0)), ko.Function(Gaussian(sigma=1.0), X[:3], np.array([1.0, 2.0, -1.0]))
    return ko.Problem(cp.Minimize(cp.sum_squares(y - theta(X)) + ko.norm(theta - f0)))


def free():
    return ko.Problem(cp.Minimize(cp.norm1(ko.Theta(ko.kernels.Polynomial(degree=2))(X) - y)))


def integers():
    theta, z = ko.Theta(Linear()), cp.Variable(30, boolean=True, name="z")
    return ko.Problem(cp.Minimize(cp.sum(z) + 0.1 * ko.sum_squares(theta)), [cp.abs(theta(X) - y) <= 0.5 + 10 * z])


def nonconvex():
    def value(u):
        return 1 / (1 + np.exp(u))

    def slope(u):
        return -value(u) * value(-u)

    loss = ko.SmoothLoss(value, slope, lambda u: -slope(u) * np.tanh(u / 2), curvature="nonconvex")
    theta = ko.Theta(Gaussian(sigma=1.0))
    return ko.Problem(cp.Minimize(cp.sum(loss(cp.multiply(np.sign(y), theta(X)))) + 0.1 * ko.sum_squares(theta)))


def components():
    theta = ko.Theta(Gaussian(sigma=1.0))
    return ko.Problem(cp.Maximize(cp.norm(theta(X))), [ko.norm(theta) <= 1])


def infeasible():
    theta = ko.Theta(Gaussian(sigma=1.0))
    return ko.Problem(cp.Minimize(ko.norm(theta)), [theta(X) >= 1, theta(X) <= 0])


def unbounded():
    return ko.Problem(cp.Minimize(cp.sum(ko.Theta(Gaussian(sigma=1.0))(X))))


def box():
    theta = ko.Theta(Gaussian(sigma=1.0))
    slopes = ko.everywhere(lambda P: ko.FeatureMatrix(P, theta.kernel).derivative(0) @ theta <= 0.5, 0, 6)
    return ko.Problem(cp.Minimize(cp.sum_squares(y - theta(X)) + 0.5 * ko.sum_squares(theta)), [slopes])


STATED = [
    robust, concave, several, mixed, shifted, free, integers, nonconvex, components, infeasible, unbounded, box
]  # fmt: skip


def solved(build, **options):
    problem = build()
    problem.solve(**options)
    return problem


def sections(problem):
    """The Markdown of each section by its title, without numbers."""
    parts = problem.derivation().markdown.split("\n## ")[1:]
    return {re.sub(r"^\d\. ", "", part.splitlines()[0]): part for part in parts}


def shown(number):
    """A number as formulas have it."""
    mantissa, _, exponent = number.partition("e")
    return mantissa + (rf" \cdot 10^{{{int(exponent)}}}" if exponent else "")


def test_all_seven_sections_with_names_and_values():
    found = sections(solved(robust))
    assert list(found) == TITLES
    statement = found[TITLES[0]]
    assert r"\text{minimize}\quad & \sum \left|\mathtt{[30\ data]} - \left(A\theta + b\right)\right|" in statement
    assert r"A\theta + b \leq 1.1" in statement and r"$\lambda = 0.5$" in statement
    assert "30 rows, 1 output; in $" in found[TITLES[1]] and "(constraint 1)" in found[TITLES[1]]
    assert r"\text{subject to}\quad & Bw + b \leq 1.1" in found[TITLES[4]]


def test_monotonicity_is_told_for_each_atom_above_a_norm():
    told = sections(solved(robust))[TITLES[2]]
    square, term = r"${\left\|\theta\right\|}^{2}$", r"$\lambda\,{\left\|\theta\right\|}^{2}$"
    assert f"{square} is nondecreasing in it; {term} is nondecreasing in it; a term of the objective" in told
    told = sections(concave())[TITLES[2]]
    assert r"$-2\,\left\|g\right\|$ is nonincreasing in it; a term of the objective, which is maximized." in told
    assert "fails" not in told


@pytest.mark.parametrize("build", [robust, concave, several, mixed, shifted])
def test_numbers_are_those_of_the_certificate(build):
    problem = solved(build)
    found, certificate = sections(problem), problem.certificate
    low, high = certificate.interval
    bound = found["The bound"]
    assert f"Optimum: in $[{low}, {high}]$" in bound and low in str(certificate)
    assert f"Absolute gap: ${shown(f'{certificate.absolute_gap:.1e}')}$" in bound
    assert f"Relative gap: ${shown(f'{certificate.relative_gap:.1e}')}$" in bound
    assert f"Value of the answer: ${problem.value:.10g}$" in bound
    evidence, dual = certificate.evidence, found["The dual point"]
    for parts, gram, mu in zip(evidence.multipliers, evidence.grams, evidence.mu, strict=True):
        for length, cost in zip(lengths_of(parts, gram), mu, strict=True):
            assert length <= cost * (1 + 1e-9)
            assert f"{length:.8g} \\leq \\mu = {cost:.8g}$" in dual
    reduction = reduction_of(problem)
    assert f"It has {reduction.size} variables" in found["The reduced problem"]
    for factor in reduction.factors.values():
        n, r = factor.B.shape
        assert f"{n} × {r}, of rank {r}" in found[TITLES[3]]


def test_multipliers_of_the_norm_are_recomputed():
    """√(νᵀQν) from the multipliers that the problem shows, for λ‖θ‖² also 2λ‖θ‖, and the cost 2 of 2‖g‖."""
    theta = ko.Theta(Gaussian(sigma=1.0))
    problem = ko.Problem(cp.Minimize(cp.sum_squares(y - theta(X)) + 0.5 * ko.sum_squares(theta)))
    problem.solve(tol=1e-10)
    nu, told = theta(X).dual_value, sections(problem)["The dual point"]
    length, mu = map(float, re.search(r"\\sqrt\{\\nu\^\\top Q\\nu\} = ([\d.]+) \\leq \\mu = ([\d.]+)", told).groups())
    assert length == pytest.approx(np.sqrt(nu @ theta.kernel(X) @ nu), rel=1e-6)
    assert mu == pytest.approx(theta.value.norm, rel=1e-4)
    assert f"‖ν‖ = {np.linalg.norm(nu):.5}"[:9] in problem.derivation().html
    assert r"\leq \mu = 2$" in sections(solved(concave))["The dual point"]


def test_the_expression_around_a_prediction_is_the_smallest_that_is_not_affine():
    theta, b = ko.Theta(Gaussian(sigma=1.0)), cp.Variable(name="b")
    objective = cp.sum(theta(X) + b) + cp.norm1(2 * (theta(X) - b)) + cp.square(ko.norm(theta))
    told = sections(ko.Problem(cp.Minimize(objective)))[TITLES[1]]
    assert (
        r"in $\sum \left(A\theta + b\right)$ (the objective); $\operatorname{norm1}\left(2\,\left(A\theta - b\r" in told
    )


def test_maximizing_turns_the_bound_round():
    found = sections(solved(concave))
    assert r"f(\text{answer}) \leq \text{optimum} \leq -D(\nu, \mu)" in found["The bound"]
    assert "the objective, negated," in found["The dual point"] and "negative" not in found[TITLES[0]]
    assert "Where g enters" in found and r"\text{maximize}\quad" in found["The reduced problem"]
    assert r"D(\nu, \mu) \leq \text{optimum} \leq f(\text{answer})" in sections(solved(robust))["The bound"]


def test_several_thetas_have_their_names():
    found = sections(solved(mixed))
    assert r"\in \mathbf{R}^{1 \times 2}$" in found[TITLES[1]] and "30 rows, 2 outputs" in found[TITLES[1]]
    assert "$A_{2}f$: predictions, values of the function, 4 rows" in found[TITLES[1]]
    # f and w are names of the problem, so that the objective and the coordinates have others
    assert r"B_{11}q_{1} - w" in found["The reduced problem"] and r"B_{12}q_{1} \geq -1" in found["The reduced problem"]
    assert r"- B_{2}q_{2}" in found["The reduced problem"] and r"L = v(u, t, y)" in found["The dual point"]
    problem = solved(mixed)
    (f, own), (g, other) = ((theta, theta._duals.values()) for theta in problem.thetas())
    for theta, nu in ((f, np.concatenate(list(own))), (g, np.concatenate(list(other)))):
        (told,) = re.findall(
            rf"For \${re.escape(latex.symbol(theta.name))}\$: \$\\\|\\nu \\\| = ([\d.]+)\$",
            sections(problem)["The dual point"],
        )
        assert float(told) == pytest.approx(np.linalg.norm(nu), rel=1e-5)
    assert "A·coefs = AC₂ᵀq₂ = B₂q₂" in solved(mixed).derivation().html
    assert r"\theta_{k}$ is each of $\theta _{1}$, $\theta _{2}$, $\theta _{3}$" in sections(several())[TITLES[2]]


def text_of(build):
    """All words and formulas, in lines of Unicode."""
    return unescape(re.sub("<[^>]*>", "", solved(build).derivation().html))


def test_coefficients_and_factors_of_several_thetas_have_an_index():
    told = text_of(several)
    assert "θₖ = Aₖᵀαₖ + θₖ⊥" in told and "(B₁·w₁ + B₂·w₂ + B₃·w₃)" in told
    assert "θ₂ = C₂ᵀw₂,  C₂C₂ᵀ = I,  AC₂ᵀ = B₂" in told and "For θ₃, B₃ is 30 × " in told


def clashing():
    """A support vector machine whose names are those of a derivation."""
    theta, C = ko.Theta(Gaussian(sigma=1.0), name="A"), cp.Parameter(pos=True, value=2.0, name="C")
    u, t, alpha = cp.Variable(name="u"), cp.Variable(name="t"), cp.Variable(30, name="α")
    losses = cp.sum(ko.losses.hinge(np.sign(y), theta(X) + u)) + cp.sum_squares(alpha - 1) + cp.square(t)
    return ko.Problem(cp.Minimize(C * losses + ko.sum_squares(theta)), [alpha >= 0])


def test_names_of_the_problem_are_no_symbols_of_the_derivation():
    told = text_of(clashing)
    assert "minimize    C·(Σ max(0, 1 − [30 data]·(G·A + u))" in told
    assert "A = Gᵀη + A⊥,  GA⊥ = 0" in told and "4. The factor of Q = GGᵀ" in told
    assert "A = Hᵀw,  HHᵀ = I,  GHᵀ = B" in told and "links q = GA, bounds v of norms" in told
    assert "L = f(q, v, y) + νᵀ(q − GA) + μ(‖A‖ − v)" in told and "D(ν, μ) = inf_(q, v ≥ 0, y) f(q, v, y)" in told


def test_names_without_a_clash_keep_the_usual_symbols():
    told = text_of(robust)
    assert "θ = Cᵀw,  CCᵀ = I,  ACᵀ = B" in told and "L = f(u, t, y) + νᵀ(u − Aθ) + μ(‖θ‖ − t)" in told


def test_dual_norms_are_defined():
    told = text_of(mixed)
    assert "Aₖᵀνₖ = Σ mⱼMⱼᵀ,  ‖mⱼ‖_(dual) ≤ μⱼ" in told and "For ‖coefs‖_2: ‖m‖_(dual) = " in told
    assert "‖mⱼ‖_(dual) is the dual norm, the largest inner product of mⱼ with an element of norm 1." in told


def test_rows_of_fitted_functions_are_counted_apart():
    assert "$N = 30$ rows, 31 distinct rows with those of fitted functions" in sections(solved(shifted))[TITLES[3]]
    assert "$N = 30$ rows, 30 distinct rows, kernel" in sections(solved(robust))[TITLES[3]]


def test_squares_of_norms_add_for_frobenius_norms_only():
    for kind, told in (("nuc", False), (2, False), ("fro", True)):
        theta = ko.Theta(Linear(), outputs=2)
        problem = ko.Problem(cp.Minimize(cp.sum_squares(np.c_[y, -y] - theta(X)) + ko.norm(theta, kind)))
        problem.solve()
        html = problem.derivation().html
        assert ("‖θ‖² = ‖Aᵀα‖² + ‖θ⊥‖²" in html) is told and ("‖θ‖ ≥ ‖Aᵀα‖" in html) is not told
        assert ("‖θ‖² = wᵀCCᵀw = ‖w‖²" in html) is told


@pytest.mark.parametrize(
    ("build", "failing", "told"),
    [
        (lambda t: (cp.norm1(t(X)), [ko.norm(t) >= 1]), "Condition (ii) fails", "`‖h‖` in constraint 1"),
        (lambda t: (cp.norm1(t(X)) - ko.norm(t), []), "Condition (ii) fails", r"$-\left\|h\right\|$ is noninc"),
        (lambda t: (cp.sum_squares(y[:, None] - t(X)), []), "Condition (i) fails", "broadcast to (30, 30)"),
        (lambda t: (cp.norm1(y[:, None] - t(X)) - ko.norm(t), []), "Both conditions fail", "broadcast to (30, 30)"),
    ],
)
def test_the_condition_that_fails_is_named_and_the_text_stops(build, failing, told):
    objective, constraints = build(ko.Theta(Gaussian(sigma=1.0), name="h"))
    problem = ko.Problem(cp.Minimize(objective), constraints)
    found = sections(problem)
    assert list(found) == ["The stated problem", "Where h enters", "The conditions of the representer theorem"]
    assert failing in found[TITLES[2]] and told in found[TITLES[2]]
    assert ("Here the condition fails." in found[TITLES[2]]) == (failing != "Condition (i) fails")
    assert "(iii)" not in found[TITLES[2]] and not problem.is_representable()


def test_other_refusals_end_after_the_conditions():
    theta = ko.Theta(Gaussian(sigma=1.0))
    found = sections(ko.Problem(cp.Minimize(cp.sum(cp.sqrt(theta(X))) + ko.norm(theta))))
    assert list(found) == TITLES[:3]
    assert "(iii)" in found[TITLES[2]] and "is not convex by the DCP rules" in found[TITLES[2]]


def test_before_a_solve_nothing_is_solved():
    problem = robust()
    found = sections(problem)
    assert (
        list(found) == TITLES[:4] and "not factored yet" in found[TITLES[3]] and "30 distinct rows" in found[TITLES[3]]
    )
    assert problem.value is None and problem._factored is None and problem.thetas()[0].value is None


def test_the_problem_and_its_answer_stay():
    problem = solved(robust)
    before = problem.value, problem.certificate, problem._factored, problem._point, problem.thetas()[0].value
    first = problem.derivation()
    after = problem.value, problem.certificate, problem._factored, problem._point, problem.thetas()[0].value
    assert all(a is b or a == b for a, b in zip(before, after, strict=True)) and first == problem.derivation()


def test_changed_parameters_end_it():
    problem = solved(robust)
    problem.parameters()[0].value = 0.7
    found = sections(problem)
    assert list(found) == TITLES[:4] and "λ changed since the last solve" in found[TITLES[3]]
    assert r"$\lambda = 0.7$" in found[TITLES[0]]


@pytest.mark.parametrize(
    ("build", "section", "told"),
    [
        (integers, "The dual point", "Integer variables have no multipliers"),
        (integers, "The bound", "with nothing to check it by"),
        (nonconvex, "The bound", "No bound exists for a nonconvex loss"),
        (components, "The dual point", "spectral form"),
        (infeasible, "The dual point", "A Farkas vector proves"),
        (infeasible, "The bound", "called `infeasible`"),
        (unbounded, "The dual point", "a ray along which the objective decreases"),
        (free, "The conditions of the representer theorem", r"The length of $\theta$ is open"),
        (free, "The dual point", r"A^\top \nu = 0"),
        (shifted, "The dual point", r"\langle m_{j}, f_{j} \rangle"),
        (shifted, "The conditions of the representer theorem", r"\| \theta - f_{0}\|^{2} ="),
        (box, "The bound", "for all x in [0, 6]"),
    ],
)
def test_what_is_special_is_told(build, section, told):
    assert told in sections(solved(build))[section]


def test_restricted_and_whole_factors_are_told():
    assert "This restricts" in sections(solved(robust, max_rank=4))[TITLES[3]]
    points = np.linspace(0, 60, 400)[:, None]
    for factorization, told in (("cholesky", "nothing is lost"), (None, "The solver used $Q$ itself, 400 × 400")):
        rough = ko.Theta(Gaussian(sigma=0.01))
        problem = ko.Problem(cp.Minimize(cp.sum_squares(np.sin(points[:, 0]) - rough(points)) + ko.sum_squares(rough)))
        problem.solve(factorization=factorization)
        assert reduction_of(problem).factors[rough].is_whole == (factorization is None)
        assert told in sections(problem)[TITLES[3]] and "restricts" not in sections(problem)[TITLES[3]]


def test_bounds_that_are_not_for_every_theta_say_so():
    found = sections(solved(free, max_rank=2))
    assert (
        r"with $BB^\top$ in place of $Q$" in found["The dual point"]
        and "in the span of the factor only" in found["The bound"]
    )
    found = sections(solved(robust, certify="estimate"))
    assert "estimated from a sample" in found["The dual point"] and "not a bound" in found["The bound"]


def test_an_answer_from_another_process_ends_with_the_rows():
    found = sections(pickle.loads(pickle.dumps(solved(robust))))
    assert list(found) == TITLES[:4] and "has no factor and no multipliers" in found[TITLES[3]]


def test_a_factor_without_an_answer_gives_the_reduced_problem():
    problem = robust()
    assert problem.reduced_problem is not None
    found = sections(problem)
    assert list(found) == TITLES[:5] and "the derivation ends here" in found[TITLES[4]]


def test_parameters_without_values_and_complex_ones():
    theta, lam = ko.Theta(Gaussian(sigma=cp.Parameter(pos=True, name="s"))), cp.Parameter(nonneg=True, name="lam")
    problem = ko.Problem(cp.Minimize(cp.sum_squares(theta(X) - y) + lam * ko.sum_squares(theta)))
    found = sections(problem)
    assert r"$\mathrm{lam} = ?$, $s = ?$" in found[TITLES[0]] and "stops here" in found[TITLES[2]]
    c, free_theta = cp.Parameter(complex=True, value=1 + 2j, name="c"), ko.Theta(Linear())
    problem = ko.Problem(cp.Minimize(cp.sum(cp.abs(free_theta(X) + c)) + ko.sum_squares(free_theta)))
    assert "$c = 1+2j$" in sections(problem)[TITLES[0]]


def test_without_theta_there_is_nothing_to_reduce():
    problem = ko.Problem(cp.Minimize(cp.square(cp.Variable(name="v") - 1)))
    assert list(sections(problem)) == TITLES[:2]
    problem.solve()
    assert "there is nothing to reduce" in sections(problem)[TITLES[1]]


def test_a_shared_norm_and_many_terms_are_listed_up_to_a_limit():
    theta = ko.Theta(Gaussian(sigma=1.0))
    f, norm = theta(X), ko.norm(theta)
    losses = sum(cp.abs(f[i] - y[i]) for i in range(30))
    problem = ko.Problem(cp.Minimize(losses + norm + cp.square(norm)), [norm <= k for k in range(2, 32)])
    found = sections(problem)
    assert "; and in 26 more" in found[TITLES[1]] and "Further occurrences of norms" in found[TITLES[2]]
    assert "10 more constraints are left out" in found[TITLES[0]]
    assert found[TITLES[2]].count(r"- $\left\|\theta\right\|$ in the objective:") == 2


def test_without_a_certificate_nothing_is_claimed():
    found = sections(solved(robust, certify=False))["The bound"]
    assert "There is no certificate" in found and "Optimum: in" not in found


class _Tags(HTMLParser):
    """Opened tags, which must close in order."""

    def __init__(self):
        super().__init__()
        self.open, self.text = [], ""

    def handle_starttag(self, tag, attrs):
        assert not attrs or tag in {"html", "meta"}
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


@pytest.mark.parametrize("build", STATED)
def test_latex_and_html_are_well_formed(build):
    derivation = solved(build).derivation()
    text = derivation.latex
    bare = re.sub(r"\\[\\{}$%&#_]", "", text)
    depth = np.cumsum([(c == "{") - (c == "}") for c in bare])
    assert depth.min() >= 0 and depth[-1] == 0
    assert bare.count("$") % 2 == 0 and "$$" not in bare
    opened = []
    for kind, name in re.findall(r"\\(begin|end)\{([a-z*]+)\}", text):
        opened.append(name) if kind == "begin" else opened.remove(opened[-1]) if opened[-1] == name else opened.append(
            "?"
        )
    assert opened == [] and text.count(r"\left") == text.count(r"\right")
    commands = set(re.findall(r"\\([a-zA-Z]+)", text))
    assert commands <= KNOWN, commands - KNOWN
    assert text.isascii() and text.startswith(r"\section*{")
    assert not re.search(r"[_^](\{[^{}]*\}|\w|\\[a-z]+) ?_", bare)  # two indices of one symbol
    page = _Tags()
    page.feed(derivation.html)
    assert page.open == [] and "\\" not in page.text and "http" not in derivation.html


def test_names_with_a_meaning_in_latex_are_escaped():
    theta, b = ko.Theta(Linear(), name="f_a"), cp.Variable(name="50%_{x}")
    problem = ko.Problem(cp.Minimize(cp.sum_squares(y - theta(X) - b) + ko.sum_squares(theta)), [b <= 1])
    problem.solve()
    derivation = problem.derivation()
    assert r"\mathrm{f\_a}" in derivation.latex and r"50\%\_\{x\}" in derivation.latex
    assert "‖f_a‖²" in derivation.html


def test_names_with_a_meaning_in_markdown_or_html_are_escaped_in_titles():
    theta, x = ko.Theta(Linear(), name="*a*<b>"), cp.Variable(name="x>")
    problem = ko.Problem(cp.Minimize(cp.sum_squares(y - theta(X) - x) + ko.sum_squares(theta)), [x <= 1])
    problem.solve()
    derivation = problem.derivation()
    assert r"## 2. Where \*a\*\<b> enters" in derivation.markdown and "&lt;b&gt; enters</h2>" in derivation.html
    assert r"\gt" not in derivation.latex and r"\lt" not in derivation.latex


def test_the_number_of_features_is_told_where_the_theorem_fails():
    theta = ko.Theta(Gaussian(sigma=1.0))
    found = sections(ko.Problem(cp.Minimize(cp.norm1(theta(X)) - ko.norm(theta))))
    assert "with the number $p$ of features, finite or not," in found[TITLES[1]]


def test_save_by_suffix(tmp_path):
    derivation = solved(robust).derivation()
    for suffix, text in ((".md", derivation.markdown), (".tex", derivation.latex), (".HTML", derivation.html)):
        derivation.save(tmp_path / f"text{suffix}")
        assert (tmp_path / f"text{suffix}").read_text(encoding="utf-8") == text
    derivation.save(str(tmp_path / "again.md"))
    with pytest.raises(OptionError, match=r"Expected a path that ends in .md, .tex or .html; got '.*pdf'. Choose .md"):
        derivation.save(tmp_path / "text.pdf")
    with pytest.raises(DataTypeError, match="a path, as text or pathlib.Path"):
        derivation.save(3)
    assert {p.name for p in tmp_path.iterdir()} == {"text.md", "text.tex", "text.HTML", "again.md"}


def test_it_prints_as_markdown():
    derivation = robust().derivation()
    assert str(derivation) == repr(derivation) == derivation._repr_markdown_() == derivation.markdown
