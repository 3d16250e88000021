"""Proofs in files: what the library writes is proven by the checker alone, and what was changed is refused."""

import json
import random
import subprocess
import sys
from dataclasses import replace
from fractions import Fraction
from math import inf, nextafter
from pathlib import Path

import cvxpy as cp
import mpmath
import numpy as np
import pytest
import stated_proofs
from stated_proofs import FOLDER, PROBLEMS

import kernelopt as ko
from kernelopt import check
from kernelopt.errors import FormatError, KernelOptError, OptionError

NAMES = sorted(PROBLEMS)
FILES = {name: (FOLDER / f"{name}.jsonl").read_text(encoding="utf-8").splitlines() for name in NAMES}


def items_of(name):
    return [json.loads(line) for line in FILES[name]]


def lines_of(items):
    return [json.dumps(item) for item in items]


def refusal(lines):
    """Why lines are refused; None where they prove something."""
    try:
        check.check(lines)
    except check.FAULTS as error:
        return f"{type(error).__name__}: {error}"
    return None


# ---------------------------------------------------------------- what is written


def test_a_file_for_each_problem():
    assert len(NAMES) >= 40
    assert sorted(path.stem for path in FOLDER.glob("*.jsonl")) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_files_are_proven(name):
    lower, upper, violation, rests_on, _ = check.check(FILES[name])
    assert lower <= upper or violation > 0 or any("within" in told for told in rests_on)
    assert upper - lower <= 1e-7 * max(1, abs(upper))
    assert violation <= 1e-11


@pytest.mark.parametrize("name", NAMES)
def test_the_optimum_is_inside(name):
    """Of the same problem, solved again in double precision."""
    proof = ko.load_certificate(FOLDER / f"{name}.jsonl")
    problem = PROBLEMS[name]()
    problem.solve()
    certificate = problem.certificate
    assert proof.lower <= certificate.upper + 1e-9 * abs(certificate.upper)
    assert proof.upper >= certificate.lower - 1e-9 * abs(certificate.lower)


def test_all_that_a_file_may_hold():
    items = [item for name in NAMES for item in items_of(name)]
    assert {item["function"] for item in items if "function" in item} == set(check.FUNCTIONS)
    assert {item["cone"] for item in items if "cone" in item} == set(check.CONES)
    terms = [term for item in items if "kernel" in item for term in item["kernel"]]
    assert {term["name"] for term in terms} == {"gaussian", "polynomial", "gram"}
    norms = [norm for item in items if "link" in item for norm in item["norms"]]
    assert {norm.get("kind") for norm in norms} == {None, "nuclear", "spectral"}
    assert {key for norm in norms for key in norm} == {"t", "M", "n", "f", "kind"}
    assert any(not item["norms"] for item in items if "link" in item)


@pytest.mark.parametrize("name", ["hinge", "to_maximize", "insensitive_of_a_laplacian_kernel"])
def test_python_alone_proves_it(name, tmp_path):
    """In another folder, isolated from installed packages."""
    command = [sys.executable, "-I", "-S", check.__file__, str(FOLDER / f"{name}.jsonl")]
    ran = subprocess.run(command, capture_output=True, text=True, encoding="utf-8", cwd=tmp_path, check=True)
    proof = ko.load_certificate(FOLDER / f"{name}.jsonl")
    assert f"proven: the optimum is in [{proof.lower}, {proof.upper}]" in ran.stdout
    assert proof.lower.hex() in ran.stdout
    assert all(f"rests on: {told}" in ran.stdout for told in proof.rests_on)


def test_the_checker_imports_nothing_else():
    source = Path(check.__file__).read_text(encoding="utf-8")
    imported = {line.split()[1] for line in source.splitlines() if line.startswith(("import ", "from "))}
    assert imported == {"json", "sys", "fractions", "math", "operator"}


def test_as_a_module(tmp_path):
    path = tmp_path / "changed.jsonl"
    path.write_text("\n".join(FILES["hinge"][:-1]), encoding="utf-8")
    ran = subprocess.run(
        [sys.executable, "-m", "kernelopt.check", str(path)],
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
    )
    assert ran.returncode == 1
    assert ran.stdout.startswith("refused: line ")
    assert not ran.stderr  # no warning that the module was there before


def hinge(n=12, strength=0.1, seed=0):
    rng = np.random.default_rng(seed)
    X, y = rng.normal(size=(n, 2)), np.sign(rng.normal(size=n))
    theta, b = ko.Theta(ko.kernels.Gaussian(sigma=1.0)), cp.Variable()
    loss = cp.sum(cp.pos(1 - cp.multiply(y, theta(X) + b)))
    return ko.Problem(cp.Minimize(loss + strength * ko.sum_squares(theta) + 5.0)), theta, X


def test_save_and_load(tmp_path):
    problem, *_ = hinge()
    problem.solve()
    proof = problem.certificate.save(tmp_path / "hinge.jsonl")
    again = ko.load_certificate(tmp_path / "hinge.jsonl")
    assert again.exact == proof.exact
    assert again.statement == proof.statement
    assert "hinge" in str(again.statement) or "max" in str(again.statement)
    assert problem.certificate.lower <= proof.lower <= proof.upper <= problem.certificate.upper
    assert str(proof).startswith(f"optimum in [{proof.lower}, {proof.upper}], in exact arithmetic")


def test_a_factor_of_low_rank_and_one_that_is_streamed(tmp_path):
    """The checker takes the full kernel, whatever the factor was."""
    X = np.random.default_rng(0).normal(size=(60, 2))
    for options in ({"max_rank": 5}, {"factorization": "streamed"}):
        theta = ko.Theta(ko.kernels.Gaussian(sigma=1.0))
        problem = ko.Problem(cp.Minimize(cp.sum_squares(np.sin(X[:, 0]) - theta(X)) + 0.1 * ko.sum_squares(theta)))
        problem.solve(**options)
        proof = problem.certificate.exact()
        assert problem.certificate.lower <= proof.lower <= proof.upper
        assert proof.upper <= problem.certificate.upper + 1e-12


@pytest.mark.parametrize("name", ["strings", "frames", "one column", "gaps"])
def test_points_that_are_no_matrix_of_numbers(tmp_path, name):
    """They are written by kernel values, but numbers in columns of a frame by their points."""
    rng, ks = np.random.default_rng(0), ko.kernels
    words = ["".join(rng.choice(list("ab"), 4)) for _ in range(20)]
    rows = [{"a": float(a), "s": s} for a, s in zip(rng.normal(size=20), words, strict=True)]
    kernel, points = {
        "strings": (ks.Spectrum(n=2), words),
        "frames": (ks.Gaussian(sigma=1.0).on("a") + ks.Spectrum(n=2).on("s"), rows),
        "one column": (2.0 * ks.Gaussian(sigma=1.0).on("a"), rows),
        "gaps": (ks.Linear().with_missing("level"), np.where(np.eye(20, 2) > 0, np.nan, rng.normal(size=(20, 2)))),
    }[name]
    theta = ko.Theta(kernel)
    loss = cp.sum(ko.losses.huber(rng.normal(size=20), theta(points)))
    problem = ko.Problem(cp.Minimize(loss + 0.1 * ko.sum_squares(theta)))
    problem.solve()
    proof = problem.certificate.save(tmp_path / "proof.jsonl")
    # A kernel matrix is written with the bound on its errors, which the proof allows for.
    assert proof.lower <= problem.certificate.upper and problem.certificate.lower <= proof.upper
    assert proof.upper - proof.lower <= problem.certificate.upper - problem.certificate.lower + 1e-8
    assert ("gaussian" in (tmp_path / "proof.jsonl").read_text()) is (name == "one column")


def test_parameters_that_changed(tmp_path):
    theta, lam = ko.Theta(ko.kernels.Linear()), cp.Parameter(nonneg=True, value=1.0, name="lam")
    loss = cp.sum_squares(theta([[0.0], [1.0]]) - np.array([1.0, 3.0]))
    problem = ko.Problem(cp.Minimize(loss + lam * ko.sum_squares(theta)))
    problem.solve()
    old = problem.certificate
    assert "lam = 1" in str(old.exact().statement)
    lam.value = 2.0
    with pytest.raises(KernelOptError, match="lam changed since"):
        old.save(tmp_path / "proof")
    problem.solve()
    with pytest.raises(KernelOptError, match="solved again since"):
        old.save(tmp_path / "proof")
    assert not (tmp_path / "proof").exists()


def test_what_has_no_exact_proof():
    f = ko.Theta(ko.kernels.Linear())
    z, X = cp.Variable(boolean=True), np.array([[0.0], [1.0]])
    integers = ko.Problem(cp.Minimize(cp.sum(cp.abs(f(X) - z)) + ko.norm(f) + z))
    boxes = ko.Problem(
        cp.Minimize(cp.sum_squares(f(X) - 1) + ko.sum_squares(f)), [ko.everywhere(lambda P: f(P) >= 0, 0, 1)]
    )
    smooth = ko.SmoothLoss(lambda u: np.cosh(u) - 1, np.sinh, np.cosh, curvature="convex")
    own = ko.Problem(cp.Minimize(cp.sum(smooth(f(X) - 1)) + ko.sum_squares(f)))
    for problem, said in ((integers, "solver's word"), (boxes, "everywhere"), (own, "StatedFunction")):
        problem.solve()
        with pytest.raises(KernelOptError, match=said):
            problem.certificate.exact()


def test_a_certificate_without_its_problem():
    problem, *_ = hinge()
    problem.solve()
    with pytest.raises(KernelOptError, match=r"Call solve\(\)"):
        replace(problem.certificate, prover=None).exact()


# ---------------------------------------------------------------- certify="exact"


def test_bounds_without_allowances():
    """With λ = 1e-6 rounding of kernel values decides; in rationals the same multipliers prove 1e-12."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 2))
    y = np.sin(2 * X[:, 0]) + 0.3 * rng.normal(size=40)
    theta = ko.Theta(ko.kernels.Gaussian(sigma=1.0))
    problem = ko.Problem(cp.Minimize(cp.sum_squares(y - theta(X)) + 1e-6 * ko.sum_squares(theta) + 7))
    problem.solve(tol=1e-9)
    assert "for the kernel matrix as computed" in problem.certificate.rests_on
    in_doubles = problem.certificate.absolute_gap
    problem.solve(tol=1e-9, certify="exact")
    found = problem.certificate
    assert problem.status == "optimal"
    assert found.absolute_gap <= 1e-3 * in_doubles
    assert found.rounding == 0
    assert "in exact arithmetic" in str(found)
    assert "for the kernel matrix as computed" not in str(found)
    assert found.lower <= problem.value <= found.upper


def test_maximize_in_exact_arithmetic():
    theta = ko.Theta(ko.kernels.Linear())
    gain = cp.sum(cp.log(theta([[1.0], [2.0]]))) - ko.sum_squares(theta)
    problem = ko.Problem(cp.Maximize(gain + 1))
    problem.solve(certify="exact")
    assert problem.certificate.lower <= problem.value <= problem.certificate.upper
    assert problem.certificate.lower == pytest.approx(np.log(2), abs=1e-6)  # θ = 1


def test_where_certify_exact_is_refused():
    f, z = ko.Theta(ko.kernels.Linear()), cp.Variable(boolean=True)
    X = np.arange(2001.0)[:, None]
    for problem in (
        ko.Problem(cp.Minimize(cp.sum_squares(f(X)) + ko.sum_squares(f))),
        ko.Problem(cp.Minimize(cp.sum(cp.abs(f(X[:2]) - z)) + ko.norm(f))),
    ):
        with pytest.raises(OptionError, match=r"Write certify=True"):
            problem.solve(certify="exact")
        assert problem.status is None


# ---------------------------------------------------------------- arithmetic


@pytest.mark.parametrize("x", [0.0, 1e-30, 0.3, 0.999, 1.0, 7.5, 80.0])
def test_exp_and_log_enclose(x):
    with mpmath.workdps(80):
        value = Fraction(x)
        for sign in (-1, 1):
            low, high = check.exp(sign * value)
            true = mpmath.exp(sign * mpmath.mpf(x))
            assert mpmath.mpf(low.numerator) / low.denominator <= true <= mpmath.mpf(high.numerator) / high.denominator
            assert high - low <= Fraction(1, 1 << 100) * max(1, int(true) + 1)
        if x > 0:
            low, high = check.ln(value)
            true = mpmath.log(mpmath.mpf(x))
            assert mpmath.mpf(low.numerator) / low.denominator <= true <= mpmath.mpf(high.numerator) / high.denominator
            assert high - low <= Fraction(1, 1 << 140)


def test_norms_are_upper_bounds():
    rng = np.random.default_rng(0)
    for n, rank in ((3, 1), (3, 2), (4, 4)):
        A = [[Fraction(v) for v in row] for row in rng.normal(size=(rank, n)).tolist()]
        G = [[sum(row[i] * row[j] for row in A) for j in range(n)] for i in range(n)]
        sigma = np.linalg.svd(np.array(A, dtype=float), compute_uv=False)
        for kind, true in (("nuclear", sigma.sum()), ("spectral", sigma.max()), ("fro", np.sqrt((sigma**2).sum()))):
            found = float(check.norm(G, kind))
            assert true * (1 - 1e-15) <= found <= true * (1 + 1e-12)


def test_products_with_the_kernel():
    """Qv and vᵀQw, enclosed, for kernels whose entries differ by many orders."""
    rng = np.random.default_rng(0)
    points = [[v.hex() for v in x] for x in rng.normal(size=(6, 2)).tolist()]
    X = np.array([[float.fromhex(v) for v in x] for x in points])
    gaussian = {"name": "gaussian", "sigma": (0.5).hex(), "points": points, "factor": (1e-9).hex()}
    squares = {"name": "polynomial", "degree": 2, "gamma": (1e6).hex(), "coef0": (0.5).hex(), "points": points}
    Q = 1e-9 * ko.kernels.Gaussian(sigma=0.5)(X) + ko.kernels.Polynomial(degree=2, scale=1e6, offset=0.5)(X)
    V = rng.normal(size=(2, 6))
    found = check.Products(check.Kernel([gaussian, squares]), [[Fraction(v) for v in row] for row in V.tolist()])
    for i in range(2):
        assert [float(low) for low, _ in found.entries(i)] == pytest.approx(Q @ V[i], rel=1e-12)
        assert all(0 <= high - low <= Fraction(1, 10**20) for low, high in found.entries(i))
        for j in range(2):
            low, high = found.inner(i, j)
            assert float(low) == pytest.approx(V[i] @ Q @ V[j], rel=1e-12)
            assert low <= high


# ---------------------------------------------------------------- what was changed


def numbers(value, path=()):
    """The places of numbers in a line."""
    if isinstance(value, dict):
        for key, part in value.items():
            yield from numbers(part, (*path, key))
    elif isinstance(value, list):
        for key, part in enumerate(value):
            yield from numbers(part, (*path, key))
    elif isinstance(value, str) and "0x" in value:
        yield path


def put(value, path, new):
    for key in path[:-1]:
        value = value[key]
    old, value[path[-1]] = value[path[-1]], new
    return old


def kinds(items, kind):
    return [item for item in items if kind in item]


def higher(items, rng):
    claim = items[-1]
    claim["lower"] = nextafter(float.fromhex(claim["upper"]) + abs(float.fromhex(claim["upper"])) * 1e-9, inf).hex()


def lower(items, rng):
    claim = items[-1]
    claim["upper"] = (float.fromhex(claim["lower"]) - 1e-9 * (1 + abs(float.fromhex(claim["lower"])))).hex()


def unbalanced(items, rng):
    """A multiplier of a row with a free column; without one, twice the first row's."""
    owned = {
        j
        for link in kinds(items, "link")
        for j in [*(j for u in link["u"] for j in u), *(norm["t"] for norm in link["norms"])]
    }
    free = [row for row in kinds(items, "row") if any(j not in owned for j, _ in row["row"])]
    row = rng.choice(free or kinds(items, "row"))
    row["a"] = check.num(row["a"]) + 1000
    row["a"] = f"{row['a'].numerator:#x}/{row['a'].denominator:#x}"


def all_larger(items, rng):
    for row in kinds(items, "row"):
        a = 3 * check.num(row["a"])
        row["a"] = f"{a.numerator:#x}/{a.denominator:#x}"


def a_row_less(items, rng):
    items.remove(rng.choice(kinds(items, "row")))


def a_row_twice(items, rng):
    items.insert(1, rng.choice(kinds(items, "row")))


def another_owner(items, rng):
    block = rng.choice(kinds(items, "function"))
    block["weights"][0] = [[len(items[0]["below"]) + 1, (1.0).hex()]]


def a_negative_weight(items, rng):
    block = rng.choice([b for b in kinds(items, "function") if any(b["weights"])])
    weights = rng.choice([w for w in block["weights"] if w])
    weights[0][1] = (-1.0).hex()


def an_unknown_name(items, rng):
    items[rng.randrange(1, len(items))]["more"] = 1


def a_column_out_of_range(items, rng):
    row = rng.choice(kinds(items, "row"))
    row["row"].append([items[0]["columns"], (1.0).hex()])


def a_column_of_two(items, rng):
    link = kinds(items, "link")[0]
    link["u"][0][0] = link["u"][0][1]


def a_point_out_of_range(items, rng):
    link = kinds(items, "link")[0]
    link["take"][0] = 10**6


def another_number(items, rng):
    item = rng.choice(items)
    places = list(numbers(item))
    if not places:
        item["more"] = 1
        return
    put(item, rng.choice(places), rng.choice(["nan", "inf", "0x1/0x0", "", "0x", None, 3, 1.5, "0x1p99999", [], "1.5"]))


def a_larger_point(items, rng):
    """α of another function, whose value the claim does not reach."""
    for link in kinds(items, "link"):
        for column in link["alpha"]:
            column[0] = (10.0).hex()
    for column in items[0]["x"]:
        column[1] = (float.fromhex(column[1]) + 100).hex() if "/" not in column[1] else (1e3).hex()


CHANGES = [higher, lower, unbalanced, all_larger, a_row_less, a_row_twice, another_owner, a_negative_weight,
           an_unknown_name, a_column_out_of_range, a_column_of_two, a_point_out_of_range, another_number,
           a_larger_point]  # fmt: skip


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_changed_files_are_refused(change):
    """Some 560 of them."""
    left = []
    for number, name in enumerate(NAMES):
        items = items_of(name)
        if change is lower and check.check(FILES[name])[2] > 0:
            continue  # the point is not feasible, so that its value is no bound
        change(items, random.Random(number))
        if change is all_larger and lines_of(items) == lines_of(items_of(name)):
            continue  # all are 0
        if refusal(lines_of(items)) is None:
            left.append(name)
    assert left == []


def in_cvxpy(items):
    """The optimum of the problem that a file states, by Clarabel, from the file alone; None for other functions."""
    number = lambda v: float(check.num(v))
    head, rows = items[0], kinds(items, "row")
    x = cp.Variable(head["columns"])
    S, s0 = np.zeros((len(rows), head["columns"])), np.array([number(row["plus"]) for row in rows])
    for i, row in enumerate(rows):
        for j, v in row["row"]:
            S[i, j] += number(v)
    c = np.zeros(head["columns"])
    for j, v in head["c"]:
        c[j] += number(v)
    s = S @ x + s0
    values = [c @ x + number(head["c0"])] + [s[r] for r in head["below"]]
    constraints = [s[r] == 0 for r in head["equal"]]
    for block in kinds(items, "function"):
        for of_rows, weights in zip(block["rows"], block["weights"], strict=True):
            h = _function(block, s[of_rows])
            for owner, v in weights:
                values[owner] = values[owner] + number(v) * h
    kernels = [np.array(_gram(item)) for item in kinds(items, "kernel")]
    for link in kinds(items, "link"):
        Q = kernels[link["link"]]
        size, V = np.linalg.eigh(Q)
        B, w = V * np.sqrt(np.maximum(size, 0)), cp.Variable((len(Q), len(link["u"])))
        for k, column in enumerate(link["u"]):
            constraints.append(x[column] == (B @ w[:, k])[link["take"]])
        constraints += [cp.norm(w, "fro") <= x[norm["t"]] for norm in link["norms"]]
    problem = cp.Problem(cp.Minimize(values[0]), constraints + [v <= 0 for v in values[1:]])
    problem.solve(solver="CLARABEL")
    return problem.value if problem.status == "optimal" else None


def _gram(item):
    kernel = check.Kernel(item["kernel"])
    Q = np.zeros((kernel.n, kernel.n))
    for i in range(kernel.n):
        Q[i, : i + 1] = [float(Fraction(v, 1 << check.P) / Fraction(2) ** kernel.shift) for v in kernel.row(i)]
    return Q + np.tril(Q, -1).T


def _function(block, s):
    with_ = block.get("with", {})
    if block["function"] == "log-sum-exp":
        return cp.log_sum_exp(cp.hstack([s, 0]))
    if block["function"] == "exp":
        return cp.exp(s[0])
    assert block["function"] == "quadratics" and "order" not in with_
    knots = [float(check.num(v)) for v in with_["knots"]]
    parts = [(float(c), float(d), float(e)) for _, _, (c, d, e) in check.Quadratics(**with_).parts]
    q = s[0]
    if not knots:
        return parts[0][0] + parts[0][1] * q + 0.5 * parts[0][2] * cp.square(q)
    r, (c, d, e) = knots[0], parts[0]
    found = c + r * (d + 0.5 * e * r) + (d + e * r) * (q - r) + 0.5 * e * cp.square(cp.neg(q - r))
    for i, knot in enumerate(knots):
        jump = (parts[i + 1][1] + parts[i + 1][2] * knot) - (parts[i][1] + parts[i][2] * knot)
        found = found + max(jump, 0.0) * cp.pos(q - knot)
        if parts[i + 1][2] and i + 1 < len(knots):
            found = found + 0.5 * parts[i + 1][2] * cp.huber(cp.pos(q - knot), knots[i + 1] - knot)
        elif parts[i + 1][2]:
            found = found + 0.5 * parts[i + 1][2] * cp.square(cp.pos(q - knot))
    return found


PLAIN = ["squares", "hinge", "pinball_of_a_cubic_kernel", "huber_of_a_sum_of_kernels", "logistic", "poisson",
         "insensitive_of_a_laplacian_kernel", "hinge_in_a_ball"]  # fmt: skip


@pytest.mark.parametrize("name", PLAIN)
def test_what_is_accepted_holds_for_what_is_stated(name):
    """Numbers are changed at random; where a file is still accepted, its bounds hold for the problem that it states."""
    accepted = 0
    for seed in range(60):
        rng, items = random.Random(seed), items_of(name)
        for _ in range(rng.randint(1, 2)):
            item = rng.choice(items[:-1])
            places = list(numbers(item))
            if places:
                place = rng.choice(places)
                value = check.num(put(item, place, "0x0p+0"))
                new = rng.choice(
                    [-value, Fraction(0), value * (1 + Fraction(rng.uniform(-1, 1)) / 10 ** rng.randint(0, 9))]
                )
                put(item, place, float(new).hex())
        most = float(np.finfo(float).max).hex()
        items[-1] |= {"lower": "-" + most, "upper": most, "violation": most}
        try:
            low, high, violation, *_ = check.check(lines_of(items))
        except check.FAULTS:
            continue
        optimum = in_cvxpy(items)
        if optimum is not None:
            accepted += 1
            slack = 1e-6 * (1 + abs(optimum))
            assert low <= optimum + slack
            assert high >= optimum - slack or violation > 1e-9
    assert accepted >= 3


# ---------------------------------------------------------------- hostile files


def a_cycle_of_bounds(items):
    """Each of two columns bounds a function of the other."""
    n, count = items[0]["columns"], len(kinds(items, "row"))
    items[0]["columns"], items[0]["below"] = n + 2, [*items[0]["below"], count, count + 1]
    items[0]["x"] += [[n, "0x0p+0"], [n + 1, "0x0p+0"]]
    below = len(items[0]["below"])
    for k in (0, 1):
        items.insert(-1, {"row": [[n + k, "-0x1p+0"]], "plus": "0x0p+0", "a": "0x1p+0"})
    for k in (0, 1):
        items.insert(-1, {"row": [[n + 1 - k, "0x1p+0"]], "plus": "0x1p+0", "a": "0x1p+0"})
        items.insert(1, {"function": "exp", "rows": [[count + 2 + k]], "weights": [[[below - 1 + k, "0x1p+0"]]]})


def of_kernel(**changes):
    def change(items):
        (term,) = kinds(items, "kernel")[0]["kernel"]
        term.update(changes)
        for name in [name for name, value in term.items() if value is None]:
            del term[name]

    return change


def of_multiplier(a):
    return lambda items: kinds(items, "row")[0].update(a=a)


HUGE = [[(2.0**1000).hex(), (2.0**-1000).hex()]]
HOSTILE = {
    "a billion columns": lambda items: items[0].update(columns=10**9),
    "a billion rows": lambda items: items[0].update(below=[10**9]),
    "a huge number": of_multiplier("0x" + "f" * 10**6),
    "a huge exponent": of_multiplier("0x1p99999999999"),
    "a huge degree": of_kernel(name="polynomial", sigma=None, degree=10**9),
    "huge points": of_kernel(name="polynomial", sigma=None, points=HUGE * 4000, degree=64),
    "many points": of_kernel(points=[["0x1p+0"]] * 6000),
    "no points": of_kernel(points=[]),
    "no terms": lambda items: kinds(items, "kernel")[0].update(kernel=[]),
    "a kernel of another": lambda items: kinds(items, "link")[0].update(link="hinge"),
    "a cycle of bounds": a_cycle_of_bounds,
    "control characters": lambda items: items[-1].update({"rests on": ["\x1b[2J"]}),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_files(name):
    items = items_of("hinge")
    HOSTILE[name](items)
    assert refusal(lines_of(items)) is not None


@pytest.mark.parametrize(
    "text",
    ["", "\n", "[]", "{}", "null", "[" * 100000, '{"format": "kernelopt proof 1"}', "\x00", '{"format": "other"}',
     '{"format": "kernelopt proof 1", "format": "kernelopt proof 1"}', "NaN", '{"format": NaN}'],
)  # fmt: skip
def test_files_that_are_none(text, tmp_path):
    path = tmp_path / "file"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(FormatError, match="line"):
        ko.load_certificate(path)


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(FileNotFoundError):
        ko.load_certificate(tmp_path / "none")
    command = [sys.executable, "-I", check.__file__, str(tmp_path / "none")]
    ran = subprocess.run(command, capture_output=True, text=True, encoding="utf-8", check=False)
    assert ran.returncode == 1
    assert "refused" in ran.stdout


def test_writing_the_corpus(tmp_path, monkeypatch):
    monkeypatch.setattr(stated_proofs, "FOLDER", tmp_path)
    monkeypatch.setattr(stated_proofs, "PROBLEMS", {"hinge": PROBLEMS["hinge"]})
    stated_proofs.main()
    assert ko.load_certificate(tmp_path / "hinge.jsonl").lower == pytest.approx(
        ko.load_certificate(FOLDER / "hinge.jsonl").lower
    )


def test_the_file_of_the_readme():
    root = Path(__file__).parents[2]
    readme = (root / "README.md").read_text(encoding="utf-8")
    (command,) = [line for line in readme.splitlines() if line.startswith("python3 kernelopt/check.py")]
    proof = ko.load_certificate(root / command.split()[-1])
    found, blocks = {}, [block.split("```")[0] for block in readme.split("```python\n")[1:3]]
    assert "[f(X) <= 1.1]" in blocks[1]
    exec("\n".join(blocks).replace("print(", "str("), found)
    assert proof.lower <= found["problem"].certificate.upper
    assert found["problem"].certificate.lower <= proof.upper
    assert proof.upper - proof.lower <= 1e-6 * proof.upper
    assert "0.5·‖θ‖²" in proof.statement[0]


def entries(pairs):
    return [[j, float(v).hex()] for j, v in pairs]


def small(*items, c=(), x=(), below=(), equal=(), columns=1, claim=(-1e300, 1e300, 1e300)):
    """A file by hand: its first line, these items, and claims."""
    head = {
        "format": "kernelopt proof 1", "sense": "minimize", "statement": [], "columns": columns, "c": entries(c),
        "c0": H0, "below": list(below), "equal": list(equal), "x": entries(x),
    }  # fmt: skip
    claims = dict(zip(("lower", "upper", "violation"), (float(v).hex() for v in claim), strict=True))
    return [json.dumps(item) for item in [head, *items, claims | {"rests on": []}]]


def row(pairs, plus, a):
    return {"row": entries(pairs), "plus": float(plus).hex(), "a": float(a).hex()}


H0 = (0.0).hex()
ONE_ROW = [[0, (1.0).hex()]]
FREE = row([(0, 1)], 0, -1)  # balances a free column of cost 1, where nothing else reads its multiplier


@pytest.mark.parametrize(
    "items",
    [
        [{"function": "exp", "with": {}, "rows": [[0, 1]], "weights": [ONE_ROW]}, row([], 0, 1), FREE],
        [
            {"function": "power", "with": {"p": (2.0).hex()}, "rows": [[0, 1]], "weights": [ONE_ROW]},
            row([], 0, 0),
            FREE,
        ],
        [{"cone": "psd", "rows": [[0, 1]]}, row([], 1, 0), FREE],
        [{"cone": "exp", "rows": [[0, 1, 2, 3]]}, row([], 0, 0), row([], 1, 0), row([], 1, 0), FREE],
    ],
    ids=["exp", "power", "semidefinite", "exponential cone"],
)
def test_multipliers_that_nothing_bounds(items):
    """minimize x + …, x free: −∞. Rows that no formula reads are refused."""
    with pytest.raises(check.Refused, match="rows of a function|a cone"):
        check.check(small(*items, c=[(0, 1)], x=[(0, 0)]))


def test_combinations_of_outputs_are_measured_whole():
    """minimize t subject to u = 1, t ≥ ‖θ[0 1]‖: 1. Without multipliers of both columns one would not be measured."""
    one, kernel = (1.0).hex(), {"kernel": [{"name": "polynomial", "points": [[(1.0).hex()]]}]}
    norm = {"t": 1, "M": [[H0, one]], "n": []}
    link = {"link": 0, "u": [[0]], "take": [0], "norms": [norm], "alpha": [[one]]}
    items = [kernel, link, row([(0, 1)], -1, 0)]
    with pytest.raises(check.Refused, match="a norm's multipliers"):
        check.check(small(*items, c=[(1, 1)], columns=2, equal=[0]))
    link["norms"] = [norm | {"n": [[H0], [H0]]}]
    lower, upper, violation, *_ = check.check(small(*items, c=[(1, 1)], columns=2, equal=[0]))
    assert (lower, violation) == (0, pytest.approx(0, abs=1e-30))
    assert 1 <= upper < 1 + 1e-15


def test_claims():
    """minimize x subject to 1 − x ≤ 0 at x = ¾, with the multiplier 1."""

    def of(lower, upper, violation):
        return small(row([(0, -1)], 1, 1), c=[(0, 1)], x=[(0, 0.75)], below=[0], claim=(lower, upper, violation))

    assert check.check(of(1, 0.75, 0.25))[:3] == (1, Fraction(3, 4), Fraction(1, 4))
    for claim, told in (
        ((1 + 1e-15, 0.75, 0.25), "the lower bound"),
        ((1, 0.75 - 1e-15, 0.25), "the upper bound"),
        ((1, 0.75, 0.25 - 1e-15), "the upper bound"),
    ):
        with pytest.raises(check.Refused, match=told):
            check.check(of(*claim))


@pytest.mark.parametrize(
    ("items", "places", "violation"),
    [
        ([row([(0, 1)], 0, 0)], {"equal": [0]}, 0.5),
        ([row([(0, -1)], 1, 0)], {"below": [0]}, 0.5),
        ([{"cone": "soc", "rows": [[0, 1]]}, row([], 0.25, 0), row([(0, 1)], 0, 0)], {}, 0.25),
        ([{"cone": "psd", "rows": [[0]]}, row([(0, -1)], 0, 0)], {}, 0.5),
        ([{"cone": "exp", "rows": [[0, 1, 2]]}, row([], 0, 0), row([], 1, 0), row([(0, 1)], 0, 0)], {}, 0.5),
    ],
    ids=["equation", "inequality", "second-order", "semidefinite", "exponential"],
)
def test_violations_at_a_point(items, places, violation):
    found = check.check(small(*items, x=[(0, 0.5)], **places))[2]
    assert found == pytest.approx(violation, rel=1e-15)


def test_a_violated_bound_is_no_bound(tmp_path, capsys):
    """A value at a point that violates constraints is told as such, by the command and by the object."""
    path = tmp_path / "violated.jsonl"
    lines = small(row([(0, -1)], 1, 1), c=[(0, 1)], x=[(0, 0.75)], below=[0])
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    assert check.main(path) == 0
    first, second, *_ = capsys.readouterr().out.splitlines()
    assert first == "proven: the optimum is at least 1.0"
    assert second == "at a point that violates constraints by 0.25 at most, it is 0.75"
    told = str(ko.load_certificate(path))
    assert told.startswith(
        "optimum at least 1.0, in exact arithmetic, 0.75 at a point that violates constraints by 2.5e-01"
    )


def coprime(k):
    return "0x1/" + hex((1 << 70000) + 2 * k + 1)


@pytest.mark.parametrize(
    "items",
    [
        [row([(0, 0)], 0, 0) | {"plus": coprime(k)} for k in range(60)],
        [{"kernel": [{"name": "gaussian", "sigma": (1.0).hex(), "points": [[coprime(k)] for k in range(20)]}]}],
        [{"kernel": [{"name": "polynomial", "degree": 64, "points": [["0x" + "f" * 19000 + "/0x1"]] * 4}]}],
        [{"function": "schatten", "with": {"n": 200, "kind": "nuclear"}, "rows": [list(range(40000))],
          "weights": [ONE_ROW]}, *([row([], k % 7, 1e-9 * (k % 11)) for k in range(40000)])],
        [{"cone": "psd", "rows": [list(range(20100))]}, *([row([], k % 7, 0) for k in range(20100)])],
    ],
    ids=["denominators", "points", "powers", "a large matrix", "a large cone"],
)  # fmt: skip
def test_work_is_bounded(items, monkeypatch):
    """By counting, before it is done. The limit is smaller here, so that the test is short."""
    monkeypatch.setattr(check, "WORK", 10**7)
    with pytest.raises(check.Refused, match="work|too long"):
        check.check(small(*items, x=[(0, 0)], below=range(60) if len(items) == 60 else ()))


@pytest.mark.parametrize(
    "change",
    [{"statement": 5}, {"statement": ["\x1b[2J"]}, {"statement": "text"}, {"equal": [0.0]}, {"below": [True]}],
)
def test_kinds_of_the_first_line(change):
    lines = small(row([(0, 1)], 0, 0), row([(0, 1)], 0, 0), below=[1], equal=[0])
    check.check([*lines[:1], *lines[1:-1], json.dumps(json.loads(lines[-1]) | {"upper": None, "violation": None})])
    with pytest.raises(check.Refused):
        check.check([json.dumps(json.loads(lines[0]) | change), *lines[1:]])


@pytest.mark.parametrize("M", [1e3 / 3, 1e8 / 3, 1e10 / 3])
def test_constants_of_far_pieces_are_exact(M):
    """Huber with all residuals below M is their square: the constant −M² of the outer pieces is rounded."""
    y = np.random.default_rng(0).uniform(-1, 1, size=20)
    values = [Fraction(v) for v in y]
    truth = sum((v - sum(values) / 20) ** 2 for v in values)
    theta, b = ko.Theta(ko.kernels.Linear()), cp.Variable()
    loss = cp.sum(cp.huber(y - theta(np.zeros((20, 1))) - b, M))
    problem = ko.Problem(cp.Minimize(loss), [ko.norm(theta) <= 1])
    problem.solve()
    low, high = problem.certificate.exact().exact
    assert low <= truth <= high
    assert high - low < 1e-12


@pytest.mark.parametrize(
    "atom",
    [
        lambda f: -cp.geo_mean(3 + f),
        lambda f: cp.inv_prod(3 + f),
        lambda f: -cp.pnorm(3 + f, 0.5),
        lambda f: cp.lambda_sum_largest(cp.bmat([[3 + f[0], f[1]], [f[1], 3 + f[2]]]), 1),
    ],
    ids=["geo_mean", "inv_prod", "pnorm", "lambda_sum_largest"],
)
def test_atoms_with_columns_of_their_own(atom):
    """The point has no values of their inner columns: the bound from below is proven, and no value far from it told."""
    theta = ko.Theta(ko.kernels.Gaussian(sigma=1.0))
    problem = ko.Problem(cp.Minimize(atom(theta(np.arange(3.0)[:, None])) + 0.1 * ko.sum_squares(theta)))
    value = problem.solve(certify="exact")
    proof = problem.certificate.exact()
    assert proof.upper is None or proof.violation < 1e-6
    assert proof.lower <= value < proof.lower + 1e-6 * abs(value)
    assert ("the lower bound in exact arithmetic" in str(problem.certificate)) == (proof.upper is None)
    assert "constraints met" not in "".join(problem.certificate.exact().rests_on)


def test_a_bound_of_terms_stays():
    """Multipliers at the boundary of a domain prove little; the signs of terms prove 0."""
    X, y = np.array([[0.0], [1.0]]), np.array([0.3, -0.7])
    theta, b = ko.Theta(ko.kernels.Gaussian(sigma=0.6)), cp.Variable()
    loss = cp.sum_largest(cp.abs(y - theta(X) - b), 1)
    problem = ko.Problem(cp.Minimize(loss), [ko.norm(theta) <= 50])
    problem.solve(certify="exact")
    assert problem.status == "optimal"
    assert problem.certificate.lower == problem.certificate.of_terms == 0
    assert problem.certificate.upper < 1e-14
    assert problem.certificate.rests_on == ("the upper bound in exact arithmetic",)


def test_names_that_do_not_print(tmp_path):
    """The statement is written without control characters, which a terminal would obey."""
    theta, b = ko.Theta(ko.kernels.Linear()), cp.Variable(name="b\x1b[2J\t\u200b")
    problem = ko.Problem(cp.Minimize(cp.sum_squares(np.ones(3) - theta(np.eye(3)) - b) + ko.sum_squares(theta)))
    problem.solve()
    proof = problem.certificate.save(tmp_path / "proof.jsonl")
    assert all(line.isprintable() for line in proof.statement)
    assert "b [2J" in "".join(proof.statement)
    assert ko.load_certificate(tmp_path / "proof.jsonl").exact == proof.exact


def test_functions_without_weights():
    """minimize x, x free, beside a function of weight 0: its multiplier is 0, or nothing is proven."""
    item = {"function": "exp", "with": {}, "rows": [[0]], "weights": [[]]}
    with pytest.raises(check.Refused, match="outside of its domain"):
        check.check(small(item, FREE, c=[(0, 1)], x=[(0, 0)]))
    assert check.check(small(item, row([(0, 1)], 0, 0), x=[(0, 0)]))[:2] == (0, 0)


def test_columns_of_theta_have_no_stated_values():
    kernel = {"kernel": [{"name": "polynomial", "points": [[(1.0).hex()]]}]}
    link = {"link": 0, "u": [[0]], "take": [0], "norms": [], "alpha": [[(1.0).hex()]]}
    assert check.check(small(kernel, link, row([(0, 1)], -1, 0), equal=[0]))[2] < 1e-30
    with pytest.raises(check.Refused, match="a value of a column of θ"):
        check.check(small(kernel, link, row([(0, 1)], -1, 0), equal=[0], x=[(0, 1)]))


def test_denominators_are_bounded(monkeypatch):
    monkeypatch.setattr(check, "BITS", 150)
    rows = [row([], 0, 0) | {"plus": f"-0x1/{(1 << 40) + k:#x}"} for k in range(3)]
    check.check(small(*rows[:2], x=[(0, 0)], below=[0, 1]))
    with pytest.raises(check.Refused, match="too long"):
        check.check(small(*rows, x=[(0, 0)], below=[0, 1, 2]))
