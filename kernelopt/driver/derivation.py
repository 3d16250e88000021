"""The derivation of the reduced problem and of its bound, written out with the formulas of one problem."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import NamedTuple

import numpy as np

from kernelopt.certificate.multipliers import lengths_of
from kernelopt.certificate.report import ESTIMATE, FULL, WORD, WORD_REDUCED, Certificate, Lower
from kernelopt.compiler import explain
from kernelopt.compiler import reduction_steps as steps
from kernelopt.compiler.reduction_steps import Material, theta_of
from kernelopt.errors import OptionError
from kernelopt.language.document import (
    Block,
    Display,
    Formula,
    Items,
    Section,
    Text,
    as_html,
    as_latex,
    as_markdown,
    expression,
    math,
    number,
    paragraph,
    symbol,
)
from kernelopt.language.everywhere import Everywhere
from kernelopt.language.nodes import ThetaNorm
from kernelopt.results.solution import Solution, Status
from kernelopt.support.checks import require_kind

TITLE = "Derivation of the reduced problem and of its bound"
SUPPORT = 1e-8  # relative to the largest multiplier: smaller ones are not counted
DUAL = Formula(r"\text{dual}", "dual")
WRITERS = {".md": "markdown", ".tex": "latex", ".html": "html"}
PROOFS = {
    Status.INFEASIBLE: "A Farkas vector proves that no point meets the constraints, for the whole kernel matrix.",
    Status.UNBOUNDED: "A feasible point, and a ray along which the objective decreases without end, prove it.",
}


@dataclass(frozen=True)
class ProblemDerivation:
    r"""How a stated problem becomes the small one, and how the bound of its optimum is proven, step by step.

    The formulas have the problem's own names. It prints as Markdown, and notebooks show it.

    Attributes
    ----------
    title : str
    sections : tuple of sections, each with its title and its paragraphs, lists and formulas

    Examples
    --------
    >>> import cvxpy as cp, numpy as np, kernelopt as ko
    >>> X, y = np.arange(6.0)[:, None], np.array([1.0, 3.0, 5.0, 7.0, 9.0, 11.0])
    >>> theta = ko.Theta(ko.kernels.Polynomial(degree=1))
    >>> lam = cp.Parameter(pos=True, value=0.1, name="λ")
    >>> objective = cp.sum_squares(y - theta(X)) + lam * ko.sum_squares(theta)
    >>> problem = ko.Problem(cp.Minimize(objective))
    >>> _ = problem.solve()
    >>> derivation = problem.derivation()
    >>> [section.title for section in derivation.sections][:3]
    ['1. The stated problem', '2. Where θ enters', '3. The conditions of the representer theorem']
    >>> print(derivation.latex[:63])
    \section*{Derivation of the reduced problem and of its bound}
    >>> r"{\left\|\mathtt{[6\ data]} - A\theta\right\|}^{2}" in derivation.markdown
    True
    """

    title: str
    sections: tuple[Section, ...]

    @property
    def markdown(self) -> str:
        """Markdown with LaTeX formulas between dollar signs."""
        return as_markdown(self.title, self.sections)

    @property
    def latex(self) -> str:
        r"""A section to \\input into a document that uses amsmath."""
        return as_latex(self.title, self.sections)

    @property
    def html(self) -> str:
        """A page that needs no network; formulas are lines of Unicode."""
        return as_html(self.title, self.sections)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write it as .md, .tex or .html, by the suffix of the path.

        Parameters
        ----------
        path : path of the file, which is replaced

        Raises
        ------
        OptionError
            For another suffix.
        """
        require_kind(path, (str, os.PathLike), "path", "a path, as text or pathlib.Path")
        suffix = Path(path).suffix.lower()
        if suffix not in WRITERS:
            raise OptionError(
                f"Expected a path that ends in .md, .tex or .html; got {os.fspath(path)!r}. Choose .md for notebooks "
                "and pandoc, .tex for an appendix, or .html for a browser."
            )
        Path(path).write_text(str(getattr(self, WRITERS[suffix])), encoding="utf-8")

    def __str__(self) -> str:
        return self.markdown

    __repr__ = __str__

    def _repr_markdown_(self) -> str:
        return self.markdown


def derived(m: Material) -> ProblemDerivation:
    """The derivation as far as the problem has got."""
    m = steps.with_letters(m)
    parts = [
        ("The stated problem", steps.stated),
        (f"Where {m.name} enters", steps.entering),
        ("The conditions of the representer theorem", steps.conditions),
    ]
    if m.form is not None:
        parts.append((f"The factor of {steps.renamed('Q = AAᵀ', m.letters)}", steps.factored))
    if m.form is not None and m.reduction is not None and not m.changed:
        parts.append(("The reduced problem", steps.reduced))
        parts += [] if m.solution is None else [("The dual point", _dual), ("The bound", _bound)]
    parts = parts if m.thetas else parts[:2]
    sections = [Section(f"{k}. {title}", tuple(write(m))) for k, (title, write) in enumerate(parts, start=1)]
    return ProblemDerivation(TITLE, tuple(sections))


# ---------------------------------------------------------------- 6. the dual point


def _dual(m: Material) -> Iterator[Block]:
    assert m.solution is not None
    if (why := _without_dual(m, m.solution)) is not None:
        yield paragraph(why)
        return
    yield from _lagrangian(m)
    certificate = m.solution.certificate
    evidence: Lower | None = None if certificate is None else certificate.evidence
    if evidence is not None and evidence.multipliers:
        yield Items(tuple(_dual_numbers(m, evidence)))
        if evidence.confined:
            BBt, Q = m.math("BBᵀ"), m.math("Q")
            yield paragraph("They belong to the problem in the span of the factor, with ", BBt, " in place of ", Q, ".")
        elif certificate is not None and certificate.scope == ESTIMATE:
            yield paragraph(m.math("νᵀQν"), " was estimated from a sample of the kernel matrix.")
    elif any(isinstance(c, Everywhere) for c in m.constraints):
        yield paragraph(
            "The bound is that of the problem at finitely many points of the box. Its multipliers are not kept."
        )
    else:
        yield paragraph("This solve has no multipliers on which a bound rests.")


def _without_dual(m: Material, solution: Solution) -> str | None:
    """Why there is no dual point; None where there may be one."""
    if "spectral" in m.kinds:
        return (
            "The problem has the spectral form: a norm of linear functions of predictions is maximized, the norm of "
            "θ is bounded. It is not convex, and has no multipliers. The optimum follows from the largest eigenvalue "
            "of a matrix that is made of kernel values. The residual of an eigenvector encloses it."
        )
    if "nonconvex" in m.kinds:
        return "A loss is declared nonconvex. There is no dual point."
    if "integers" in m.kinds:
        return "Integer variables have no multipliers. There is no dual point."
    if solution.value is None or not isfinite(solution.value):
        told = f"The solve ended as `{solution.status}`, and there is no optimum that a dual point could bound."
        return f"{told} {PROOFS.get(solution.status, '')}".strip()
    return None


class NormTerms(NamedTuple):
    """What norms add to the Lagrangian and to the dual function, and when θ leaves it, as templates of `math`.

    arguments : of f beside u and y, and of D beside ν; over : of the infimum; why : how the condition's sentence begins
    """

    arguments: tuple[str, str]
    norms: str
    over: str
    dual: str
    condition: str
    why: str


def _terms(m: Material, k: str) -> NormTerms:
    """With k the index of a θ, empty where there is one."""
    assert m.reduction is not None
    form, total = m.reduction.form, "Σ " if k else ""
    if not form.norms:
        return NormTerms(("", ""), "", "u, y", "", f"A{k}ᵀν{k} = 0", "The")
    both, over = ("t, ", ", μ"), "u, t ≥ 0, y"
    if all([norm.is_plain for norm in form.norms_of(theta).values()] == [True] for theta in m.thetas):
        norms, condition = f" + {total}μ{k}(‖{{θ}}‖ − t{k})", f"‖A{k}ᵀν{k}‖ = √⟨ν{k}ᵀQ{k}ν{k}⟩ ≤ μ{k}"
        return NormTerms(
            both, norms, over, f" − {total}μ{k}t{k}", condition, "By the inequality of Cauchy and Schwarz, the"
        )
    norms, condition = " + Σ μⱼ(‖{θ}Mⱼ − fⱼ‖ − tⱼ)", f"A{k}ᵀν{k} = Σ mⱼMⱼᵀ,  ‖mⱼ‖_⟨{{dual}}⟩ ≤ μⱼ"
    shift = " − Σ ‹mⱼ, fⱼ›" if m.has_shift else ""
    return NormTerms(
        both, norms, over, f" − Σ μⱼtⱼ{shift}", condition, "In dual norms, summed over the norms of one θ, the"
    )


def _lagrangian(m: Material) -> Iterator[Block]:
    """The Lagrangian, and the condition under which θ leaves it."""
    k = "ₖ" if len(m.thetas) > 1 else ""
    terms, total = _terms(m, k), "Σ " if k else ""
    parts = {"θ": math("θₖ") if k else symbol(m.name), "dual": DUAL}
    (of_f, of_dual), links = terms.arguments, m.math(f"u{k} = A{k}{{θ}}", **parts)
    nu, mu = m.math("ν"), m.math("μ ≥ 0")
    told: Text = (", bounds ", m.math("t"), " of norms, and multipliers ", nu, " and ", mu, ",")
    yield paragraph("With links ", links, *(told if terms.norms else (" and multipliers ", nu)), " the Lagrangian is")
    yield _formula(m, f"L = f(u, {of_f}y) + {total}ν{k}ᵀ(u{k} − A{k}{{θ}}){terms.norms}", **parts)
    objective = f" is the objective, {'negated, ' * m.maximizes}with its constraints. "
    yield paragraph(m.math("f"), objective, m.math("y"), " are the other variables.")
    yield paragraph(f"{terms.why} infimum over ", parts["θ"], " is finite iff")
    yield _formula(m, terms.condition, **parts)
    if "Mⱼ" in terms.norms:
        yield paragraph(
            m.math("‖mⱼ‖_⟨{dual}⟩", dual=DUAL), " is the dual norm, the largest inner product of ", m.math("mⱼ"),
            " with an element of norm 1. ", m.math("Mⱼ"), " is the identity in norms of ", parts["θ"], " itself, and ",
            m.math("fⱼ"), " is 0 in norms without a fitted function.",
        )  # fmt: skip
    yield paragraph("Then ", parts["θ"], " leaves the Lagrangian, and what remains is the dual function")
    yield _formula(m, f"D(ν{of_dual}) = inf_⟨{terms.over}⟩ f(u, {of_f}y) + {total}ν{k}ᵀu{k}{terms.dual}")


def _formula(m: Material, template: str, **parts: Formula) -> Display:
    return Display((("", m.math(template, **parts)),))


def _dual_numbers(m: Material, evidence: Lower) -> Iterator[Text]:
    """For each θ the size of ν, and for each of its norms the dual norm beside μ."""
    assert m.reduction is not None
    form, at = m.reduction.form, 0
    for k, link in enumerate(form.predictions):
        size = 0 if link.u is None else link.u.size
        nu = np.zeros(size) if evidence.nu is None else evidence.nu[at : at + size]
        at += size
        parts = evidence.multipliers[k]
        support = np.count_nonzero(np.abs(nu) > SUPPORT * np.abs(nu).max(initial=0.0))
        told = f", {support} of {size} entries exceed {SUPPORT:g} of the largest"
        length = m.math("‖ν‖ = {v}", v=number(f"{np.linalg.norm(nu):.8g}"))
        free: Text = () if parts.norms else ("; no norm has a cost, and ", m.math("Aᵀν = 0"))
        yield ("For ", theta_of(m, link.theta), ": ", length, told, *free, ".")
        if not parts.norms:
            continue
        lengths = lengths_of(parts, evidence.grams[k])
        for j, found, mu in zip(parts.norms, lengths, evidence.mu[k], strict=True):
            norm = form.norms[j]
            name = "√⟨νᵀQν⟩" if len(parts.norms) == 1 and norm.is_plain else "‖m‖_⟨{dual}⟩"
            told_norm = expression(ThetaNorm(norm.view.theta._leaf, norm.view, norm.kind), m.named)
            numbers = {"dual": DUAL, "a": number(f"{float(found):.8g}"), "b": number(f"{float(mu):.8g}")}
            yield ("For ", told_norm, ": ", m.math(f"{name} = {{a}} ≤ μ = {{b}}", **numbers), ".")


# ---------------------------------------------------------------- 7. the bound


def _bound(m: Material) -> Iterator[Block]:
    solution = m.solution
    assert solution is not None
    if "nonconvex" in m.kinds:
        yield paragraph("No bound exists for a nonconvex loss: the answer is a local optimum at best.")
    certificate: Certificate | None = solution.certificate
    if certificate is not None:
        yield from _enclosure(m, solution, certificate)
    elif solution.value is not None and isfinite(solution.value) and "nonconvex" not in m.kinds:
        yield paragraph("There is no certificate, and nothing is proven about the optimum.")
    ended = f"The answer is called `{solution.status}`."
    remedy = explain.remedy(solution, m.reduction is not None and m.reduction.is_restriction)
    yield paragraph(f"{ended} {remedy}".strip())


def _enclosure(m: Material, solution: Solution, certificate: Certificate) -> Iterator[Block]:
    low, high = certificate.interval
    by_word = certificate.scope in {WORD, WORD_REDUCED}
    yield from _weak_duality(m, certificate, by_word)
    bounds = math("[{a}, {b}]", a=number(low), b=number(high))
    rows: list[Text] = [("Optimum: in ", bounds, ".")]
    if solution.value is not None:
        rows.append(("Value of the answer: ", number(f"{solution.value:.10g}"), "."))
    rows.append(("Absolute gap: ", number(f"{certificate.absolute_gap:.1e}"), "."))
    if told := certificate._of_no_unit():
        rows.append((f"Relative gap: {told}.",))
    else:
        rows.append(("Relative gap: ", number(f"{certificate.relative_gap:.1e}"), "."))
    if not by_word:
        rows.append(("Allowance for rounding, included in the gap: ", number(f"{certificate.rounding:.1e}"), "."))
    rows.append((f"Scope: {certificate.scope}. {_scope(certificate)}",))
    rows += [(f"Assumed: {told}.",) for told in certificate.assumptions]
    rows += [(f"Condition: {told}.",) for told in certificate.rests_on]
    yield Items(tuple(rows))


def _weak_duality(m: Material, certificate: Certificate, by_word: bool) -> Iterator[Block]:
    """Which bound is proven by what."""
    if by_word:
        yield paragraph(f"One bound is the word of {certificate.solver}, with nothing to check it by.")
        return
    if "integers" in m.kinds:
        yield paragraph(
            "On each box of the integers, weak duality bounds the relaxation from its multipliers. The least of these "
            "bounds, over boxes that hold all integers, is a bound of the problem."
        )
        return
    if "spectral" in m.kinds:
        return
    bare = certificate.bare or certificate  # constants of the objective are added to both bounds with rounding
    if bare.of_terms is not None and bare.of_terms == (bare.upper if m.maximizes else bare.lower):
        yield paragraph(
            "Here the signs of the terms and the bounds of the variables give a bound that is as good as that of the "
            "dual point, or better. It takes no multipliers."
        )
        return
    D = "D(ν, μ)" if m.reduction is not None and m.reduction.form.norms else "D(ν)"
    yield paragraph("Weak duality encloses the optimum, for all multipliers that meet the condition of the dual point:")
    words = {word: Formula(rf"\text{{{word}}}", word) for word in ("answer", "optimum")}
    chain = f"f({{answer}}) ≤ {{optimum}} ≤ −{D}" if m.maximizes else f"{D} ≤ {{optimum}} ≤ f({{answer}})"
    yield _formula(m, chain, **words)


def _scope(certificate: Certificate) -> str:
    if certificate.scope == FULL:
        return "The interval holds for every θ of the stated problem, and for the whole kernel matrix."
    if certificate.scope == ESTIMATE:
        return "It is an estimate from a sample of the kernel matrix, not a bound."
    if certificate.scope in {WORD, WORD_REDUCED}:
        return "Nothing is proven."
    return "The interval holds for θ in the span of the factor only."
