"""Imports point one way: down this list. Two modules on one line don't import each other."""

import ast
from itertools import pairwise
from pathlib import Path

import pytest

import kernelopt

ORDER = [
    ["estimators", "persistence", "plots"],
    ["cross_validation", "kernel_selection"],
    ["feature_space", "paths", "predictors", "testing"],
    ["left_out", "model_selection", "path_table"],
    ["problem"],
    ["growth"],
    ["ranks"],
    ["options", "spectral"],
    ["verification"],
    ["local"],
    ["solving"],
    ["certificate"],
    ["solvers"],
    ["compiler"],
    ["solution"],
    ["factorization"],
    ["expressions", "losses", "rows"],
    ["nodes"],
    ["smooth"],
    ["functions"],
    ["history"],
    ["table"],
    ["drawing", "kernels"],
    ["arithmetic", "clock", "html", "keywords", "optional", "progress", "threads"],
    ["errors"],
]
# Inside the packages: each file imports only from files further down its own list.
INSIDE = {
    "estimators": [
        ["feature_map", "one_class", "pca", "perceptron", "regression", "stated"],
        ["classification"],
        ["model"],
        ["kernels", "sample"],
    ],
    "persistence": [["loading", "saving"], ["archive", "vocabulary"]],
    "compiler": [
        ["explain"],
        ["projection", "squares"],
        ["representer"],
        ["products"],
        ["feasibility", "separable"],
        ["patterns"],
        ["largest"],
        ["conic_form", "pieces", "spectral_form"],
        ["inverse"],
        ["integers"],
        ["explicit", "form"],
        ["latex", "rules"],
        ["attributes", "text"],
    ],
    "certificate": [
        ["certify", "spectral"],
        ["conic", "conjugates", "handover", "sizes"],
        ["joint"],
        ["balance", "dual_rows", "pivots", "report"],
        ["multipliers"],
        ["gram"],
        ["checker"],
        ["claim"],
    ],
    "solvers": [
        ["selection"],
        ["own"],
        ["domain"],
        ["nonconvex"],
        ["augmented_lagrangian", "interior_point", "least_squares"],
        ["assemble", "conic", "local_model", "outer", "rays", "semismooth", "spectral"],
        ["newton_systems"],
        ["watch"],
        ["cones", "dual_point"],
        ["structured"],
    ],
    "factorization": [["growing"], ["blocked"], ["streamed"], ["dense"], ["base"], ["cluster"], ["tall"], ["memory"]],
    "kernels": [
        ["cached", "derivatives", "histogram", "transforms"],
        ["functions", "generalized", "polynomial", "precomputed", "stationary", "strings"],
        ["algebra"],
        ["base"],
        ["chain", "tiles"],
        ["rounding"],
        ["domains"],
        ["sources"],
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
    for package, levels in INSIDE.items():
        assert {r[1] for r in rooms if r[0] == package} == {n for names in levels for n in names}


def test_the_order_is_used():
    """The list above isn't vacuous: neighbours do import each other."""
    for upper, lower in pairwise(["problem", "compiler", "expressions", "functions", "kernels", "errors"]):
        files = [p for p in FILES if p.relative_to(ROOT).parts[0].removesuffix(".py") == upper]
        assert any(f"kernelopt.{lower}" in name for p in files for name in imported(p)), (upper, lower)


def test_import_has_no_side_effects_on_cvxpy():
    """Nothing is registered with cvxpy: its canonicalizers know none of our nodes."""
    from cvxpy.reductions.dcp2cone.canonicalizers import CANON_METHODS  # noqa: PLC0415

    assert not [atom for atom in CANON_METHODS if atom.__module__.startswith("kernelopt")]
