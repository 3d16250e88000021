"""Imports point one way: down this list. Two modules on one line don't import each other."""

import ast
import importlib
import json
import subprocess
import sys
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest

import kernelopt
from kernelopt.driver.strategy import Work
from kernelopt.factorization.factor import Factor
from kernelopt.factorization.tall import TallMatrix
from kernelopt.solvers.engine import Engine

ORDER = [
    ["plots"],
    ["estimators"],
    ["equivalence", "model_selection"],
    ["problem"],
    ["sensitivity"],
    ["driver"],
    ["boxes"],
    ["spectral"],
    ["certificate"],
    ["persistence", "solvers"],
    ["compiler", "feature_space"],
    ["factorization", "results"],
    ["losses", "testing"],
    ["language"],
    ["kernels", "pieces"],
    ["support"],
    ["check", "errors"],
]
# What users import. All else has a room.
TOP = {"check", "errors", "feature_space", "losses", "plots", "problem", "testing"}
# Inside the packages: each file imports only from files further down its own list.
INSIDE = {
    "boxes": [["exchange"], ["bend"], ["coefficients", "least_value"]],
    "certificate": [
        ["certify", "proof_file"],
        ["attained", "on_pieces"],
        ["all_rows", "cancelling", "links", "report", "rooms"],
        ["lengths", "nested", "parts", "pieces_checker"],
        ["multipliers"],
        ["rationals"],
        ["checker"],
        ["claim", "dual_cones", "gram", "pivots", "proof_items", "sizes", "slopes"],
    ],
    "compiler": [
        ["reduction_steps"],
        ["comparison", "explain", "projection"],
        ["violations"],
        ["representer"],
        ["residuals"],
        ["atom_domains"],
        ["linear_rows"],
        ["outer"],
        ["sums"],
        ["level_sets"],
        ["collecting", "largest_losses", "units"],
        ["reader", "separable"],
        ["feasibility", "integers"],
        ["atom_rules", "columns", "conic_form", "linearization", "restated"],
        ["iterate"],
        ["canonical_form", "entries", "explicit", "least", "terms", "uses"],
        ["attributes", "linear_maps", "quadratic_part", "rules"],
    ],
    "driver": [
        ["statement"],
        ["principal_components", "refine"],
        ["audits", "in_kernel_space"],
        ["policy", "verification"],
        ["proximal_linearization"],
        ["convex", "local_optima", "options"],
        ["integer_proof"],
        ["judgement"],
        ["answered", "derivation", "diagnosis", "exact", "mixed_integer", "values"],
        ["strategy"],
    ],
    "equivalence": [
        ["reductions"],
        ["findings"],
        ["by_function"],
        ["reduced_optimum"],
        ["flat_directions", "meanings", "pointwise"],
        ["reduction_report"],
    ],
    "estimators": [
        ["cross_validated", "perceptron", "stated"],
        ["nu_forms"],
        ["by_gradient", "classification", "one_class", "pca"],
        ["regression"],
        ["feature_map", "intercepts", "intervals"],
        ["model"],
        ["scoring"],
        ["kernel_names", "keywords", "sample"],
    ],
    "factorization": [
        ["growing"],
        ["blocked", "reuse", "streamed"],
        ["elimination"],
        ["dense", "whole"],
        ["cluster"],
        ["block_matrix", "factor", "row_block"],
        ["tall"],
        ["memory"],
    ],
    "kernels": [
        ["indexed", "missing", "named_columns", "remembered"],
        ["polynomial", "transforms"],
        [
            "cached",
            "callables",
            "categorical",
            "derivatives",
            "generalized",
            "gower",
            "histogram",
            "precomputed",
            "spline",
            "spreads",
            "stationary",
            "strings",
        ],
        ["gamma_mixture", "lifts"],
        ["algebra"],
        ["adjoints", "parametrized"],
        ["kernel"],
        ["domains", "interval_means", "tiles"],
        ["chain", "rounding", "sources"],
        ["records", "sparse_rows"],
    ],
    "language": [
        ["document"],
        ["latex"],
        ["text"],
        ["everywhere"],
        ["expressions", "predictors"],
        ["functionals", "nodes", "rows"],
        ["functions", "proximal", "smooth", "survival"],
        ["boxes", "symbol"],
    ],
    "model_selection": [
        ["jax_layer"],
        ["bands", "tuning"],
        ["cross_validation"],
        ["carried", "closed_form", "gradients", "paths", "posterior"],
        ["leave_one_out_slope", "left_out_functions"],
        ["leave_one_out"],
        ["conformal", "kernel_selection", "laplace", "path_table", "quadratic_model", "squares"],
    ],
    "pieces": [
        ["by_size"],
        ["bounds", "extremes", "form", "ratios", "spectral"],
        ["custom", "moreau", "norms"],
        ["elementary", "quadratics"],
        ["function", "inverse"],
    ],
    "persistence": [["loading", "proofs", "saving"], ["archive", "vocabulary"]],
    "results": [["solution"], ["history"]],
    "sensitivity": [
        ["gradient_of"],
        ["one_sided"],
        ["degenerate", "directional", "named", "solution_map"],
        ["criterion", "optimum"],
        ["natural_units", "unpriced"],
        ["active", "chain_rule", "kkt"],
        ["atom_slopes", "stated_cones"],
    ],
    "solvers": [
        ["choice"],
        ["engines"],
        ["first_point", "nonconvex", "on_rows"],
        ["method_of_multipliers"],
        ["row_systems"],
        ["row_blocks", "row_gradients"],
        ["row_reduction"],
        ["row_multipliers"],
        ["augmented_lagrangian", "recentring"],
        ["proximal_point"],
        ["semismooth"],
        ["fixed_output", "interior_point", "least_squares", "newton_systems"],
        ["active_set", "engine", "libsvm"],
        ["watch"],
        ["assemble", "dual_point", "free_kinks", "cone_program", "rays", "row_problem"],
        ["row_functions"],
        ["cones", "culprits", "cvxpy_solvers", "dual_feasibility", "maxima", "nu_machines", "structured"],
        ["integer_boxes", "machines"],
        ["answers", "branch_and_bound", "cone_memory", "coupling", "equilibration", "kernel_space", "local_columns"],
    ],
    "spectral": [["spectral_problems"], ["enclosure"], ["eigenvalues", "spectral_form"]],
    "support": [
        ["table"],
        ["cvxpy_parts", "drawing", "processes"],
        ["keywords", "long_rows", "optional", "outside", "singular", "sparse", "submatrix"],
        ["threads"],
        ["arithmetic", "checks", "clock", "html", "locks", "progress", "properties", "types", "undoing"],
    ],
}
ROOT = Path(kernelopt.__file__).parent
LEVEL = {name: i for i, names in enumerate(ORDER) for name in names}


def imported(path):
    """Dotted names of kernelopt's modules that a file imports."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "kernelopt":
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.startswith("kernelopt"))


FILES = [p for p in sorted(ROOT.rglob("*.py")) if p.name != "__init__.py"]


def points_down(path, name):
    """Whether what a file imports stands below it."""
    room, other = path.relative_to(ROOT).with_suffix("").parts, name.split(".")[1:]
    if not other:  # the whole package
        return False
    if other[0] != room[0]:
        return LEVEL[other[0]] > LEVEL[room[0]]
    inside = {n: i for i, names in enumerate(INSIDE.get(room[0], ())) for n in names}
    if len(room) == 1 or len(other) == 1 or other[1] not in inside or other[1] == room[1]:
        return True
    return inside[other[1]] > inside[room[1]]


@pytest.mark.later
def test_imports_point_down():
    found = [(path, name) for path in FILES for name in imported(path)]
    assert len(found) > 500
    assert [f"{path.relative_to(ROOT)}: {name}" for path, name in found if not points_down(path, name)] == []


def test_no_message_advises_a_package_that_is_not_there():
    """No distribution has the name kernelopt: messages name the package that is missing."""
    assert [path.name for path in ROOT.rglob("*.py") if "pip install 'kernelopt" in path.read_text()] == []


def test_every_module_has_a_place():
    rooms = {p.relative_to(ROOT).with_suffix("").parts for p in FILES}
    assert {r[0] for r in rooms} == set(LEVEL)
    assert {r[0] for r in rooms if len(r) == 1} == TOP
    for package, levels in INSIDE.items():
        assert {r[1] for r in rooms if r[0] == package} == {n for names in levels for n in names}


@pytest.mark.later
def test_the_order_is_used():
    """The list above isn't vacuous: neighbours do import each other."""
    for upper, lower in pairwise(
        [
            "problem",
            "driver",
            "certificate",
            "solvers",
            "compiler",
            "factorization",
            "language",
            "kernels",
            "support",
            "errors",
        ]
    ):
        files = [p for p in FILES if p.relative_to(ROOT).parts[0].removesuffix(".py") == upper]
        assert any(f"kernelopt.{lower}" in name for p in files for name in imported(p)), (upper, lower)


def test_import_has_no_side_effects_on_cvxpy():
    """Nothing is registered with cvxpy: its canonicalizers know none of our nodes."""
    from cvxpy.reductions.dcp2cone.canonicalizers import CANON_METHODS  # noqa: PLC0415

    assert not [atom for atom in CANON_METHODS if atom.__module__.startswith("kernelopt")]


def test_names_of_modules_are_told_apart():
    parsed = [ast.parse(p.read_text()) for p in FILES if p.name != "check.py"]
    names = [n.name for tree in parsed for n in tree.body if isinstance(n, ast.ClassDef)]
    assert sorted(names) == sorted(set(names))


def test_implementations_owe_what_abstract_classes_say():
    """A solver, a factor, a tall matrix, a kind of problem: one short abstract class each, a sentence an operation."""
    assert kernelopt.Problem  # imports the implementations
    for base in (Engine, Factor, TallMatrix, Work):
        owed = base.__abstractmethods__
        assert owed and all(getattr(base, name).__doc__ for name in owed)
        assert base.__subclasses__()


def test_completion_offers_public_names_only():
    offered = {name for name in dir(kernelopt) if not name.startswith("__")}
    assert offered == {name for name in kernelopt.__all__ if not name.startswith("__")} | {"estimators"}


# What `import kernelopt` imports: the language, and what it is made of.
FIRST = {"errors", "kernels", "language", "losses", "pieces", "support"}
RENAMED = {"history": "results.history", "paths": "model_selection.paths", "solution": "results.solution",
           "verification": "driver.verification"}  # fmt: skip


@cache
def imported_first(then=""):
    """Modules that `import kernelopt` adds to those of cvxpy in a new process, where warnings are errors."""
    code = (
        f"import cvxpy, json, sys; before = set(sys.modules); import kernelopt; {then}\n"
        "print(json.dumps([m for m in sys.modules if m not in before]))"
    )
    ran = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=True)
    assert ran.stderr == ""
    return frozenset(json.loads(ran.stdout))


def own(modules):
    return {m for m in modules if m.startswith("kernelopt.") and m.removeprefix("kernelopt.") not in RENAMED}


def test_import_reads_the_language_only():
    """Solvers, certificates and model selection, five times as many modules, come when they are first used."""
    assert {m.split(".")[1] for m in own(imported_first())} == FIRST
    assert len(own(imported_first("kernelopt.Problem"))) > 3 * len(own(imported_first()))


def test_import_adds_one_package_to_those_of_cvxpy():
    """Neither parts of scipy that cvxpy leaves out, nor matplotlib, scikit-learn, dask, pandas, tqdm."""
    packages = {m.split(".")[0] for m in imported_first() if not m.startswith("kernelopt")}
    assert packages - sys.stdlib_module_names == {"threadpoolctl"}
    assert "asyncio" not in packages


def test_type_checkers_see_what_is_imported_later():
    tree = ast.parse((ROOT / "__init__.py").read_text())
    (block,) = [n for n in tree.body if isinstance(n, ast.If) and ast.unparse(n.test) == "TYPE_CHECKING"]
    assert all(isinstance(n, ast.ImportFrom) for n in block.body)
    stated = {alias.name: n.module.removeprefix("kernelopt").removeprefix(".") for n in block.body for alias in n.names}
    assert stated == kernelopt._LATER


def test_public_names_are_reachable():
    for name in dir(kernelopt):
        assert getattr(kernelopt, name) is not None
    assert {name: getattr(kernelopt, name) for name in kernelopt.__all__}.keys() <= vars(kernelopt).keys()
    with pytest.raises(AttributeError, match="module 'kernelopt' has no attribute 'Probelm'"):
        kernelopt.Probelm


def test_earlier_names_of_modules_lead_to_the_present_ones():
    for old, new in RENAMED.items():
        module = importlib.import_module(f"kernelopt.{new}")
        names = [n for n, thing in vars(module).items() if getattr(thing, "__module__", "") == module.__name__]
        assert names
        assert [n for n in names if getattr(sys.modules[f"kernelopt.{old}"], n) is not getattr(module, n)] == []
