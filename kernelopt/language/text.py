"""cvxpy's expression trees as text, in mathematical notation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, count
from typing import Any

import cvxpy as cp
import numpy as np
import scipy.sparse as sp

from kernelopt.language.everywhere import Everywhere
from kernelopt.language.expressions import Theta
from kernelopt.language.nodes import Prediction, ThetaNorm
from kernelopt.language.proximal import ProximalTerm
from kernelopt.language.smooth import SmoothTerm
from kernelopt.support.cvxpy_parts import Leaf, Pnorm, Power, index, quad_over_lin, special_index

LIMIT = 120  # characters of a description, one line of text
LONGEST_INDEX = 24  # characters of an index that is shown; longer masks and lists get a letter
LETTERS = "ijklmnopq"
# Terms of a sum, or arguments of a function, that are all shown. Of more, these are the first FIRST and the last.
TERMS, FIRST = 8, 3
SUBSCRIPTS = str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉")
INTEGER = np.dtype(np.int64).itemsize
POWERS = {"2": "²", "3": "³"}
# cvxpy's names of nodes that only change a shape, or what is known of a matrix.
TRANSPARENT = {"Promote", "broadcast_to", "psd_wrap"}
# Public names of cvxpy's classes, and atoms with a count as their first datum.
NAMES = {
    "Pnorm": "pnorm", "PnormApprox": "pnorm", "GeoMean": "geo_mean", "GeoMeanApprox": "geo_mean",
    "QuadForm": "quad_form", "SymbolicQuadForm": "quad_form", "MatrixFrac": "matrix_frac", "Vstack": "vstack",
    "Hstack": "hstack", "Concatenate": "concatenate", "Trace": "trace",
}  # fmt: skip
COUNTED = {"sum_largest", "lambda_sum_largest"}
# Names of variables and of parameters to which the user gave none, without letters that stand for something else here.
VARIABLES, PARAMETERS = "bcdeghsvz", "λαβγδηρτω"
MATRICES = ("A", "A′", "A″")  # feature matrices of values, first and second derivatives


@dataclass(frozen=True)
class Notation:
    """The names of θs, of the feature matrices of each θ by their fingerprints, and of unnamed leaves by their ids."""

    thetas: Mapping[Theta, str] = field(default_factory=dict)
    matrices: Mapping[tuple[Theta, object], str] = field(default_factory=dict)
    leaves: Mapping[int, str] = field(default_factory=dict)

    def theta(self, theta: Theta) -> str:
        return self.thetas.get(theta, theta.name)

    def matrix(self, theta: Theta, fingerprint: object) -> str:
        return self.matrices.get((theta, fingerprint), MATRICES[0])

    def leaf(self, leaf: Any) -> str:
        """The name of a variable or parameter."""
        return self.leaves.get(leaf.id) or str(leaf.name())


def notation(thetas: Iterable[Theta], statements: Sequence[Any]) -> Notation:
    """Names for the θs of a problem and their feature matrices.

    The matrices of one θ are A, or A₁, A₂ … in order of appearance; A′ and A″ are derivatives. Those of a constraint
    everywhere in a box have one name at all points at which it is imposed.
    """
    found = {(p.data.theta, p.data.fingerprint): p.data.A for s in statements for p in _predictions(s)}
    kinds = [(theta, MATRICES[len(A.order)]) for (theta, _), A in found.items()]
    matrices = dict(zip(found, _numbered(kinds, [kind for _, kind in kinds]), strict=True))
    for box in statements:
        if isinstance(box, Everywhere) and box.points is not None:
            for shown, imposed in zip(_predictions(box.shown), _predictions(box._stated(box.points)), strict=True):
                name = matrices[shown.data.theta, shown.data.fingerprint]
                matrices.setdefault((imposed.data.theta, imposed.data.fingerprint), name)
    of_thetas = names(thetas)
    return Notation(of_thetas, matrices, letters((leaf for s in statements for leaf in _leaves(s)), of_thetas.values()))


def letters(leaves: Iterable[Any], others: Iterable[str] = ()) -> dict[int, str]:
    """Letters for the variables and parameters that the user did not name, by their ids, in order of appearance.

    cvxpy names them by their id: var206, param7. Leaves with one name get subscripts, b₁ and b₂, as does one with the
    name of another object.
    """
    found, others = {leaf.id: leaf for leaf in leaves if isinstance(leaf, (cp.Variable, cp.Parameter))}, list(others)
    taken = {str(leaf.name()) for leaf in found.values()}
    free = {kind: _free(alphabet, taken) for kind, alphabet in (("var", VARIABLES), ("param", PARAMETERS))}
    kinds = {i: "param" if isinstance(leaf, cp.Parameter) else "var" for i, leaf in found.items()}
    unnamed = [i for i, leaf in found.items() if leaf.name() == f"{kinds[i]}{leaf.id}"]
    called = [str(leaf.name()) for i, leaf in found.items() if i not in unnamed]
    told = _numbered([*others, *called], [*others, *called])[len(others) :]
    named = zip((i for i in found if i not in unnamed), called, told, strict=True)
    return {i: next(free[kinds[i]]) for i in unnamed} | {i: new for i, old, new in named if new != old}


def _free(alphabet: str, taken: set[str]) -> Iterator[str]:
    """The letters that are not taken, then the same with subscripts."""
    subscripted = (a + str(n).translate(SUBSCRIPTS) for n in count(2) for a in alphabet)
    return (name for name in chain(alphabet, subscripted) if name not in taken)


def _leaves(node: Any) -> Iterator[Any]:
    parts = [node.shown] if isinstance(node, Everywhere) else node if isinstance(node, list) else node.args
    if isinstance(node, Leaf):
        yield node
    for part in parts if not isinstance(node, (Prediction, ThetaNorm)) else ():
        yield from _leaves(part)


def _predictions(node: Any) -> Iterator[Prediction]:
    if isinstance(node, Prediction):
        yield node
    else:
        parts = [node.shown] if isinstance(node, Everywhere) else node if isinstance(node, list) else node.args
        for part in parts:
            yield from _predictions(part)


def _numbered(things: list[Any], called: list[str]) -> list[str]:
    """The names `called` of things, with a subscript where equal things occur more than once."""
    count, seen, found = Counter(things), Counter[Any](), []
    for thing, name in zip(things, called, strict=True):
        seen[thing] += 1
        found.append(name + (str(seen[thing]).translate(SUBSCRIPTS) if count[thing] > 1 else ""))
    return found


def names(thetas: Iterable[Theta]) -> dict[Theta, str]:
    """A name for each θ, numbered where several have the same: θ₁, θ₂."""
    thetas = list(thetas)
    called = [theta.name for theta in thetas]
    return dict(zip(thetas, _numbered(called, called), strict=True))


def describe(node: Any, limit: int | None = LIMIT, named: Notation | None = None) -> str:
    """A problem, constraint or expression in one line, shortened to `limit` characters."""
    printer = Printer(named or Notation())
    text, legend = printer.whole(node)
    return (text if limit is None or len(text) <= limit else text[: limit - 1] + "…") + legend


class Printer:
    """Writes expressions in one line of Unicode; `latex` has a subclass for LaTeX."""

    def __init__(self, named: Notation) -> None:
        self.named = named
        self._lists: dict[tuple[bytes, int], str] = {}  # long indices by their entries and what they choose from

    def whole(self, node: Any) -> tuple[str, str]:
        """The text, and what the letters of long indices stand for; a single one is written out."""
        text = self.text(node)
        counts: dict[str, list[str]] = {}
        for (entries, of), letter in self._lists.items():
            counts.setdefault(f"{len(entries) // INTEGER} of {of}", []).append(letter)
        if len(self._lists) == 1:
            return text.replace("[i]", self.spaced(f"[{next(iter(counts))}]")), ""
        told = "; ".join(f"{', '.join(letters)}: {count} entries" for count, letters in counts.items())
        return text, f"  ({told})" if told else ""

    def spaced(self, text: str) -> str:
        return text

    def chosen(self, node: Any) -> str:
        """The index in brackets; a letter for a long mask or list."""
        if isinstance(node, index):
            return f"[{', '.join(map(_slice, node.key, node.args[0].shape))}]"
        shown = str(node.name().removeprefix(node.args[0].name()))
        if len(shown) <= LONGEST_INDEX:
            return shown
        of = node.args[0].size
        entries = np.ravel(np.arange(of).reshape(node.args[0].shape, order="F")[node.key]).astype(np.int64)
        letter = LETTERS[len(self._lists) % len(LETTERS)]
        return f"[{self._lists.setdefault((entries.tobytes(), of), letter)}]"

    def elided(self, parts: list[str]) -> list[str]:
        """The first and the last of many parts, with their number between them."""
        if len(parts) <= TERMS:
            return parts
        return [*parts[:FIRST], self.omitted(len(parts) - FIRST - 1), parts[-1]]

    def omitted(self, count: int) -> str:
        return f"… {count} more terms …"

    def everywhere(self, inequality: str, box: str) -> str:
        return f"{inequality} for all x in {box}"

    def text(self, node: Any) -> str:
        node = bare(node)
        if isinstance(node, Everywhere):
            return self.everywhere(self.text(node.shown), node.text)
        if isinstance(node, Prediction):
            theta, matrix = node.data.theta, self.named.matrix(node.data.theta, node.data.fingerprint)
            return self.prediction(matrix, self.named.theta(theta))
        if isinstance(node, ThetaNorm):
            theta = node.view.theta
            return self.theta_norm(node.name().replace(theta.name, self.named.theta(theta), 1))
        if isinstance(node, cp.Constant):
            return self.constant(constant(node.value))
        if isinstance(node, Leaf) or not node.args:
            return self.name(self.named.leaf(node) if isinstance(node, Leaf) else str(node.name()))
        name = node.loss.name if isinstance(node, (ProximalTerm, SmoothTerm)) else type(node).__name__
        if isinstance(node, (index, special_index)):
            return self.indexed(self.wrapped(node.args[0]), self.chosen(node))
        if isinstance(node, Power):
            return self.power(node)
        if isinstance(node, quad_over_lin) and isinstance(node.args[1], cp.Constant) and node.args[1].value == 1:
            return self.raised(self.norm(self.text(node.args[0])), "2")
        if isinstance(node, Pnorm) and node.p == 2:
            return self.norm(self.text(node.args[0]))
        method = getattr(self, f"of_{name}", None)
        if method is not None:
            return str(method(node))
        parts = self.elided([self.text(a) if not isinstance(a, list) else "[…]" for a in node.args])
        return self.call(NAMES.get(name, name), [*parts, *self.details(node)])

    def details(self, node: Any) -> list[str]:
        """What an atom has beside its arguments: counts, exponents, weights, and its axis."""
        name, found = type(node).__name__, list[str]()
        if name in COUNTED:
            found.append(f"{node.get_data()[0]:g}")
        elif name == "huber":
            found.append(self.text(node.M))
        elif isinstance(node, Pnorm):
            found.append(f"{float(node.p):g}")
        elif NAMES.get(name) == "geo_mean" and np.ptp(np.array(node.w, dtype=float)) > 0:
            found.append("[" + ", ".join(self.elided([str(share) for share in node.w])) + "]")
        axis = getattr(node, "axis", None)
        return found if axis is None else [*found, f"axis={axis}"]

    def wrapped(self, node: Any) -> str:
        """The text of a node, in brackets unless it is a leaf."""
        return self.text(node) if isinstance(bare(node), Leaf) else self.brackets(self.text(node))

    def factor(self, node: Any) -> str:
        """The text of a node, in brackets if it is a sum."""
        text = self.text(node)
        return self.brackets(text) if type(bare(node)).__name__ == "AddExpression" else text

    def power(self, node: Any) -> str:
        base, p = node.args[0], node.p.value
        inner = self.text(base)
        plain = isinstance(base, (ThetaNorm, cp.Variable, cp.Parameter)) or (isinstance(base, Pnorm) and base.p == 2)
        return self.raised(inner if plain else self.brackets(inner), node.p.name() if p is None else f"{float(p):g}")

    # ------------------------------------------------------------ how things are written

    def prediction(self, matrix: str, theta: str) -> str:
        return f"{matrix}·{theta}"

    def theta_norm(self, text: str) -> str:
        return text

    def constant(self, text: str) -> str:
        return text

    def name(self, name: str) -> str:
        return name

    def indexed(self, text: str, index: str) -> str:
        return text + index

    def norm(self, text: str) -> str:
        return f"‖{text}‖"

    def raised(self, text: str, power: str) -> str:
        return text + POWERS.get(power, f"^{power}")

    def brackets(self, text: str) -> str:
        return f"({text})"

    def call(self, name: str, parts: list[str]) -> str:
        return f"{name}({', '.join(parts)})"

    # ------------------------------------------------------------ cvxpy's nodes by name

    def of_AddExpression(self, node: Any) -> str:
        parts = self.elided([self.text(a) for a in node.args])
        return parts[0] + "".join(f" − {p[1:]}" if p.startswith("−") else f" + {p}" for p in parts[1:])

    def of_NegExpression(self, node: Any) -> str:
        text = self.factor(node.args[0])
        return text[1:] if text.startswith("−") else f"−{text}"

    def of_multiply(self, node: Any) -> str:
        left, right = node.args
        if isinstance(left, cp.Constant) and constant(left.value) in {"1", "−1"}:
            return f"{'−' if constant(left.value) == '−1' else ''}{self.factor(right)}"
        return f"{self.factor(left)}·{self.factor(right)}"

    def of_MulExpression(self, node: Any) -> str:
        left, right = node.args
        if left.size > 1 and right.size > 1:
            return f"{self.factor(left)} @ {self.factor(right)}"
        return self.of_multiply(node)

    def of_DivExpression(self, node: Any) -> str:
        return f"{self.factor(node.args[0])} / {self.factor(node.args[1])}"

    def of_Sum(self, node: Any) -> str:
        return f"Σ{'' if node.axis is None else f'_{node.axis}'} {self.factor(node.args[0])}"

    def of_maximum(self, node: Any) -> str:
        # cp.pos(x) is maximum(x, 0) in cvxpy; max(0, x) is the usual way to write it.
        return f"max({', '.join(self.elided([self.text(a) for a in reversed(node.args)]))})"

    def of_abs(self, node: Any) -> str:
        return f"|{self.text(node.args[0])}|"

    def of_Inequality(self, node: Any) -> str:
        left, right = node.args
        if left.is_constant() and not right.is_constant():
            return f"{self.text(right)} ≥ {self.text(left)}"
        return f"{self.text(left)} ≤ {self.text(right)}"

    def of_Equality(self, node: Any) -> str:
        return f"{self.text(node.args[0])} = {self.text(node.args[1])}"

    def of_Minimize(self, node: Any) -> str:
        return f"minimize  {self.text(node.args[0])}"

    def of_Maximize(self, node: Any) -> str:
        return f"maximize  {self.text(node.args[0])}"


def bare(node: Any) -> Any:
    """The node whose values an expression repeats, or has in another shape: c of `ones @ c[None, :]`."""
    while (part := _repeated(node)) is not None:
        node = part
    return node


def _repeated(node: Any) -> Any:
    if type(node).__name__ in TRANSPARENT:
        return node.args[0]
    if type(node).__name__ == "reshape" and _long(node.shape) == _long(node.args[0].shape):
        return node.args[0]
    if isinstance(node, special_index):
        axes = node.key if isinstance(node.key, tuple) else (node.key,)
        return node.args[0] if all(axis is None or _is_full(axis) for axis in axes) else None
    if type(node).__name__ == "MulExpression" and node.args[0].ndim == node.args[1].ndim == 2:
        for ones, other in (node.args, node.args[::-1]):  # so cvxpy adds rows and columns to matrices
            if isinstance(ones, cp.Constant) and node.args[0].shape[1] == 1 and constant(ones.value) == "1":
                return other
    return None


def _long(shape: tuple[int, ...]) -> list[int]:
    """The axes of more than one entry."""
    return [n for n in shape if n != 1]


def _is_full(axis: Any) -> bool:
    return isinstance(axis, slice) and axis == slice(None)


def _slice(part: slice, length: int) -> str:
    """A slice as it is typed, without ends that are those of the axis; a number for one entry."""
    chosen = range(length)[slice(part.start, None if part.stop < 0 else part.stop, part.step)]
    if len(chosen) == 1:
        return str(chosen[0])
    first, last = (0, length) if part.step > 0 else (length - 1, -1)
    start, stop = ("" if end == limit else str(end) for end, limit in ((part.start, first), (part.stop, last)))
    return f"{start}:{stop}" + (f":{part.step}" if part.step != 1 else "")


def constant(value: Any) -> str:
    """The common value of all entries as a number, or else the shape."""
    if not sp.issparse(value):
        value = np.asarray(value)
    if not sp.issparse(value) and value.size and (value == value.flat[0]).all():
        value = value + 0  # −0 is 0
        return f"{value.flat[0]:g}".replace("-", "−", 1) if value.flat[0] < 0 else f"{value.flat[0]:g}"
    return "[" + "×".join(map(str, value.shape)) + " data]"
