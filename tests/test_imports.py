"""Imports point one way: down this list. Two modules on one line don't import each other."""

import ast
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
    ["model_selection"],
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
    ["kernels"],
    ["support"],
    ["errors"],
]
# What users import. All else has a room.
TOP = {"errors", "feature_space", "losses", "plots", "problem", "testing"}
# Inside the packages: each file imports only from files further down its own list.
INSIDE = {
    "boxes": [["exchange"], ["bend"], ["least_value"]],
    "certificate": [
        ["certify"],
        ["cone_bounds", "conjugates", "handover"],
        ["cancelling", "report"],
        ["balance", "checker", "multipliers"],
        ["claim", "dual_rows", "gram", "joint", "pivots", "sizes"],
    ],
    "compiler": [
        ["explain", "projection"],
        ["representer"],
        ["separable"],
        ["exponential_sums", "feasibility", "integers", "patterns", "vacuous"],
        ["conic_form", "iterate", "largest"],
        ["canonical_form", "explicit", "pieces"],
        ["attributes", "inverse", "quadratic_part", "rules", "structure"],
    ],
    "driver": [
        ["statement"],
        ["principal_components", "refine"],
        ["in_kernel_space"],
        ["policy", "verification"],
        ["convex", "local_optima", "options"],
        ["judgement"],
        ["answered", "diagnosis", "mixed_integer", "values"],
        ["strategy"],
    ],
    "estimators": [
        ["cross_validated", "perceptron", "stated"],
        ["nu_forms"],
        ["by_gradient", "classification", "one_class", "pca"],
        ["regression"],
        ["feature_map"],
        ["model"],
        ["scoring"],
        ["kernel_names", "sample"],
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
        ["indexed"],
        ["polynomial", "transforms"],
        [
            "cached",
            "callables",
            "derivatives",
            "generalized",
            "histogram",
            "precomputed",
            "spreads",
            "stationary",
            "strings",
        ],
        ["lifts"],
        ["algebra"],
        ["adjoints", "parametrized"],
        ["kernel"],
        ["domains", "interval_means", "tiles"],
        ["chain", "rounding", "sources"],
    ],
    "language": [
        ["latex"],
        ["text"],
        ["everywhere"],
        ["expressions", "predictors"],
        ["functionals", "nodes", "rows"],
        ["functions", "smooth", "survival"],
        ["boxes"],
    ],
    "model_selection": [
        ["jax_layer"],
        ["tuning"],
        ["cross_validation"],
        ["carried", "closed_form", "gradients", "paths"],
        ["leave_one_out_slope"],
        ["leave_one_out"],
        ["kernel_selection", "path_table", "quadratic_model", "squares"],
    ],
    "persistence": [["loading", "saving"], ["archive", "vocabulary"]],
    "results": [["solution"], ["history"]],
    "sensitivity": [["gradient_of"], ["solution_map"], ["criterion", "optimum"], ["active", "kkt"], ["stated_cones"]],
    "solvers": [
        ["choice"],
        ["engines"],
        ["first_point", "nonconvex"],
        ["augmented_lagrangian", "recentring"],
        ["proximal_point"],
        ["semismooth"],
        ["interior_point", "least_squares", "newton_systems"],
        ["active_set", "engine", "libsvm"],
        ["watch"],
        ["assemble", "dual_point", "free_kinks", "outer_dual", "rays"],
        ["cones", "culprits", "cvxpy_solvers", "dual_feasibility", "machines", "maxima", "structured"],
        ["cone_memory", "coupling", "kernel_space"],
    ],
    "spectral": [["spectral_problems"], ["enclosure"], ["eigenvalues", "spectral_form"]],
    "support": [
        ["table"],
        ["cvxpy_parts", "drawing", "processes"],
        ["optional", "outside", "sparse", "submatrix"],
        ["threads"],
        ["arithmetic", "checks", "clock", "html", "keywords", "locks", "progress", "properties", "types"],
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


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_point_down(path):
    room = path.relative_to(ROOT).with_suffix("").parts
    for name in imported(path):
        other = name.split(".")[1:]
        assert other, f"{path.name} imports the whole package"
        if other[0] == room[0]:
            if len(room) > 1 and len(other) > 1:
                inside = {n: i for i, names in enumerate(INSIDE[room[0]]) for n in names}
                target = other[1] if other[1] in inside else None
                level = inside[room[1]]
                assert target is None or inside[target] > level or target == room[1], (path, name)
            continue
        assert LEVEL[other[0]] > LEVEL[room[0]], f"{path.relative_to(ROOT)} imports {name}, which is not below it"


def test_every_module_has_a_place():
    rooms = {p.relative_to(ROOT).with_suffix("").parts for p in FILES}
    assert {r[0] for r in rooms} == set(LEVEL)
    assert {r[0] for r in rooms if len(r) == 1} == TOP
    for package, levels in INSIDE.items():
        assert {r[1] for r in rooms if r[0] == package} == {n for names in levels for n in names}


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
    names = [p.stem for p in FILES]
    assert len(names) == len(set(names))


def test_documented_paths_keep_working():
    from kernelopt.history import History  # noqa: PLC0415
    from kernelopt.paths import Path as Answers  # noqa: PLC0415
    from kernelopt.solution import Status  # noqa: PLC0415
    from kernelopt.verification import Report  # noqa: PLC0415

    from kernelopt.results import History as Same  # noqa: PLC0415

    assert History is Same and Status.OPTIMAL == "optimal" and Answers and Report


def test_names_of_classes_are_told_apart():
    names = [n.name for p in FILES for n in ast.parse(p.read_text()).body if isinstance(n, ast.ClassDef)]
    assert sorted(names) == sorted(set(names))


def test_implementations_owe_what_abstract_classes_say():
    """A solver, a factor, a tall matrix, a kind of problem: one short abstract class each, a sentence an operation."""
    for base in (Engine, Factor, TallMatrix, Work):
        owed = base.__abstractmethods__
        assert owed and all(getattr(base, name).__doc__ for name in owed)
        assert base.__subclasses__()


def test_completion_offers_public_names_only():
    offered = {name for name in dir(kernelopt) if not name.startswith("__")}
    assert offered == {name for name in kernelopt.__all__ if not name.startswith("__")} | {"estimators"}
