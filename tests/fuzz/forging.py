"""Forged and mutated files: whatever bytes a file has, it loads or a FormatError is raised, in bounded time and memory.

`python tests/fuzz/forging.py 5000 [FIRST]` makes as many files and prints each that does anything else, with its
number; `forged(number)` makes one again.
"""

from __future__ import annotations

import copy
import io
import json
import re
import sys
import tempfile
import time
import tracemalloc
import zipfile
from functools import cache
from pathlib import Path

import cvxpy as cp
import numpy as np
from sklearn.gaussian_process import kernels as gp

import kernelopt as ko
from kernelopt.errors import FormatError

SECONDS, BYTES = 2.0, 256e6
X = np.abs(np.random.default_rng(0).normal(size=(6, 3)))
WORDS = ["ab", "banana", "", "añb"]
# Values that a file may claim in the place of any other.
VALUES = [
    None, True, False, 0, 1, -1, 2, 10**6, 10**9, 2**63, 10**400, -(10**18), 0.0, 1e-300, 1e300, -1.5, "", "a",
    "x" * 10**5, [], {}, [0] * 10**4, [[]] * 1000, {"kind": "array", "member": 0}, {"kind": "strings", "member": 0},
    {"kind": "slice", "ends": [None, None, -1]}, {"kind": "slice", "ends": [0, 10**9, 1]},
    {"kind": "value", "value": 1}, {"kind": "points", "function": None},
    {"kind": "float32", "value": 1e300}, {"kind": "list", "items": [1, 2]},
    {"kind": "kernel", "name": "Constant", "parameters": {"value": 10**9}},
]  # fmt: skip
SIZES = [0, 1, 2, 3, 6, 7, 1000, 10**7, 10**9, 10**12, 10**17]
TYPES = ["<f8", ">f8", "<f4", "<i8", "|b1", "<c16", "<U1", "<U9", "|u1", "<f16", "|O", "<U999999999"]


@cache
def originals() -> tuple[dict[str, bytes], ...]:
    """The members of files as they are saved: of functions on values, derivatives, means, words; of predictors."""
    k, rng, made = ko.kernels, np.random.default_rng(1), []
    gaussian = k.Gaussian(sigma=1.5)
    theta, several, b = ko.Theta(gaussian), ko.Theta(gaussian, outputs=2), cp.Variable()
    A = ko.FeatureMatrix(X, gaussian)
    loss = cp.sum_squares(A @ theta - 1) + cp.sum_squares(A.derivative(1) @ theta - b)
    loss += cp.sum_squares(several(X) - X[:, :2])
    ko.Problem(cp.Minimize(loss + 0.1 * ko.sum_squares(theta) + 0.1 * ko.sum_squares(several))).solve(certify=False)
    means = ko.Theta(gaussian)
    boxes = cp.sum_squares(ko.integral(X, X + 0.3, gaussian) @ means - 1)
    ko.Problem(cp.Minimize(boxes + ko.sum_squares(means))).solve(certify=False)

    def of(kernel, points):
        return ko.Function(kernel, points, rng.normal(size=len(points)))

    one = ko.Function(gaussian, X, rng.normal(size=6))
    theta_of_one = ko.Theta(gaussian)
    theta_of_one.value = one
    predictors = [
        cp.logistic(theta_of_one(X)) + b, cp.max(several(X), axis=1), several(X)[:, [0, 1]] @ np.eye(2),
        cp.vstack([theta_of_one(X), several(X)[:, 0]]).T,
    ]  # fmt: skip
    values = [
        {"theta": theta, "b": b, "labels": np.array(["a", "b"]), "yes": np.array([True])}, {"means": means},
        {f"f{i}": ko.Predictor(f, X) for i, f in enumerate(predictors)},
        {"words": of(k.Spectrum(n=2).centered(WORDS), WORDS), "more": of(k.Spectrum(n=1).cached(WORDS), WORDS)},
        {"matrix": of(k.Precomputed(np.eye(9)) + k.Delta(), np.arange(4)), "none": np.zeros((0, 3))},
        {"f": of((gaussian.on([0]) * k.Linear().ard([1, 2, 3])).exp() + k.Matern(nu=1.5, sigma=1.0).centered(X), X)},
        {"f": of(k.as_kernel(1.5 * gp.RBF([1.0, 2.0, 3.0]) + gp.DotProduct() ** 2), X)},
        {"f": of(k.PolynomialSeries([1, 0, 2]) + k.GeneralizedGaussian("mahalanobis", 2.0, np.eye(3)), X)},
    ]  # fmt: skip
    for some in values:
        buffer = Path(tempfile.mkdtemp()) / "model"
        ko.save(buffer, **some)
        with zipfile.ZipFile(buffer) as file:
            made.append({name: file.read(name) for name in file.namelist()})
        buffer.unlink()
        buffer.parent.rmdir()
    return tuple(made)


def zipped(members) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        for name, content in members.items():
            file.writestr(zipfile.ZipInfo(name), content)
    return buffer.getvalue()


def forged(number: int) -> bytes:
    """One file; the number determines it."""
    rng = np.random.default_rng([7, number])
    members = dict(originals()[rng.integers(len(originals()))])
    for _ in range(rng.integers(1, 4)):
        WAYS[rng.integers(len(WAYS))](members, rng)
    whole = bytearray(zipped(members))
    if rng.random() < 0.15:
        for at in rng.integers(len(whole), size=rng.integers(1, 5)):
            whole[at] = rng.choice([0, 255, rng.integers(256)])
    return bytes(whole[: rng.integers(len(whole))] if rng.random() < 0.02 else whole)


def _places(node, path=()):
    yield path
    if isinstance(node, (dict, list)):
        for key, value in node.items() if isinstance(node, dict) else enumerate(node):
            yield from _places(value, (*path, key))


def _at(document, path):
    for key in path:
        document = document[key]
    return document


def _in_json(members, rng):
    """Another value in one place of the document: one of a list, one of another place, or none; or another name."""
    try:
        document = json.loads(members["kernelopt.json"])
    except (ValueError, KeyError):
        return
    places = [p for p in _places(document) if p]
    if not places:
        return
    *above, last = places[rng.integers(len(places))]
    parent, draw = _at(document, above), rng.random()
    if draw < 0.5:
        parent[last] = copy.deepcopy(VALUES[rng.integers(len(VALUES))])
    elif draw < 0.8:
        parent[last] = copy.deepcopy(_at(document, places[rng.integers(len(places))]))
    elif isinstance(parent, dict):
        value = parent.pop(last)
        if draw < 0.9:
            parent[str(rng.choice(["kind", "name", "", "sigma", "value", "psd", "columns"]))] = value
    elif len(parent) < 100:
        parent *= int(rng.choice([0, 2, 500]))
    members["kernelopt.json"] = json.dumps(document).encode()


def _in_header(members, rng):
    """Another shape or type of an array, often with as many bytes as it claims where these are few."""
    names = [name for name in members if name.endswith(".npy")]
    if not names:
        return
    name = str(rng.choice(names))
    shape = tuple(int(rng.choice(SIZES)) for _ in range(rng.integers(4)))
    kind, order = str(rng.choice(TYPES)), str(rng.choice(["True", "False"]))
    if rng.random() < 0.5:
        shape = (0, *shape[1:])
    if rng.random() < 0.5:
        kind = "<f8"
    header = f"{{'descr': '{kind}', 'fortran_order': {order}, 'shape': {shape}, }}\n".encode()
    size = int(np.prod([float(n) for n in shape]) * int(kind[2:] if kind[2:].isdigit() else 8))
    body = bytes(size) if size < 10**5 and rng.random() < 0.9 else members[name][128:]
    members[name] = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + body


def _without_rows(members, rng):
    """All arrays of a function lose their rows, and may claim any number of columns: both cost no bytes."""
    columns = int(rng.choice(SIZES))
    for name in [name for name in members if name.endswith(".npy")]:
        length = 10 + int.from_bytes(members[name][8:10], "little")
        head = members[name][10:length].decode(errors="replace")
        shape = re.search(r"\((\d*), ?(\d*)\)", head)
        if shape is not None and shape[1] != shape[2]:  # products of outputs are square
            head = head[: shape.start()] + (f"(0, {columns})" if shape[2] else "(0,)") + ", }\n"
            members[name] = b"\x93NUMPY\x01\x00" + len(head).to_bytes(2, "little") + head.encode()


def _in_numbers(members, rng):
    """Other numbers in an array: of any bits, NaN, inf, huge, negative, all 0."""
    names = [name for name in members if name.endswith(".npy") and len(members[name]) > 136]
    if not names:
        return
    name = str(rng.choice(names))
    content = bytearray(members[name])
    start = 10 + int.from_bytes(content[8:10], "little")
    if start + 8 > len(content):
        return
    number = rng.choice([np.nan, np.inf, -np.inf, 1e300, -1e300, 1e7, -1.0, 0.0, 5e-324, rng.normal()])
    at = start + 8 * int(rng.integers((len(content) - start) // 8))
    content[at : at + 8] = rng.bytes(8) if rng.random() < 0.3 else np.float64(number).tobytes()
    members[name] = bytes(content)


def _members(members, rng):
    """A member in the place of another one, one too few, or one too many."""
    names = list(members)
    one, other = (str(name) for name in rng.choice(names, size=2))
    draw = rng.random()
    if draw < 0.5:
        members[one] = members[other]
    elif draw < 0.75 and one != "kernelopt.json":
        del members[one]
    else:
        members[str(rng.choice(["9.npy", "9.json", "x.pkl", "../a.npy", "-1.npy"]))] = members[other]


def _bytes(members, rng):
    """Single bytes of a member."""
    name = str(rng.choice(list(members)))
    content = bytearray(members[name])
    if content:
        content[rng.integers(min(len(content), 200))] = rng.integers(256)
    members[name] = bytes(content)


WAYS = [_in_json, _in_json, _in_json, _in_header, _in_header, _without_rows, _in_numbers, _members, _bytes]


def fault(whole: bytes, path: Path) -> str | None:
    """What is wrong with how a file is loaded; None where it loads, or FormatError is raised, in bounds."""
    path.write_bytes(whole)
    tracemalloc.reset_peak()
    before, start = tracemalloc.get_traced_memory()[0], time.process_time()
    try:
        values = ko.load(path)
        found = None if isinstance(values, dict) else f"a {type(values).__name__}"
    except FormatError as error:
        found = None if len(str(error)) < 3000 else f"a message of {len(str(error))} characters"
    except Exception as error:
        found = f"{type(error).__name__}: {str(error)[:200]}"
    seconds, peak = time.process_time() - start, tracemalloc.get_traced_memory()[1] - before
    found = f"{seconds:.1f} s" if found is None and seconds > SECONDS else found
    return f"{peak / 1e6:.0f} MB" if found is None and peak > BYTES else found


def faults(numbers, path: Path):
    """(number, what is wrong) for files with these numbers."""
    originals()
    tracemalloc.start()
    try:
        for number in numbers:
            found = fault(forged(number), path)
            if found is not None:
                yield number, found
    finally:
        tracemalloc.stop()


if __name__ == "__main__":
    count, first = int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0
    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        for number, found in faults(range(first, first + count), Path(folder) / "model"):
            wrong += 1
            print(f"file {number}: {found}", flush=True)
    print(f"{count} files, {wrong} faults")
    sys.exit(bool(wrong))
