"""What prose mentions: names of this library and of others, papers, and examples; addresses are in links.toml."""

import re
import tomllib
from pathlib import Path

LINKS = tomllib.loads(
    (Path(__file__).parent / "links.toml").read_text(encoding="utf-8")
)
NAME = re.compile(r"([A-Za-z_][\w.]*)(\(.*\))?", re.DOTALL)  # with or without a call

ABBREVIATED = {"cp.": "cvxpy.", "np.": "numpy."}
# `problem.solve()` is a method of this class, as variables are called on all pages.
OWNERS = {
    "ko.": "kernelopt.",
    "errors.": "kernelopt.errors.",
    "theta.value.": "kernelopt.results.FittedFunction.",
    "theta.": "kernelopt.Theta.",
    "problem.": "kernelopt.Problem.",
    "certificate.": "kernelopt.certificate.Certificate.",
    "kernel.": "kernelopt.kernels.Kernel.",
    "k.": "kernelopt.kernels.Kernel.",
}
ROOMS = (
    "kernelopt.",
    "kernelopt.kernels.",
    "kernelopt.estimators.",
    "kernelopt.errors.",
)  # of `Gaussian` alone
SKLEARN = {
    name.rpartition(".")[2]: name
    for name in LINKS["names"]
    if name.startswith("sklearn.")
}
AMBIGUOUS = {"KernelPCA"}  # here and in scikit-learn


EXAMPLE = re.compile(r"\]\((?:\.\./)+examples(?:/([\w/]+)\.py)?\)")


def of_pages(text):
    """A page whose links to scripts of examples lead to the pages that are made of them, and to the gallery."""
    return EXAMPLE.sub(lambda found: f"](/gallery/{found[1] or 'index'}.rst)", text)


def own(name):
    """Full names that a name in prose may stand for, in this library."""
    yield name
    yield from (
        full + name.removeprefix(short)
        for short, full in OWNERS.items()
        if name.startswith(short)
    )
    if name[0].isupper() and name not in AMBIGUOUS:
        yield from (room + name for room in ROOMS)


def elsewhere(name):
    """The full name in another library of a name in prose: `cp.norm`, `SVC`, `jax.grad`."""
    for short, full in ABBREVIATED.items():
        if name.startswith(short):
            return full + name.removeprefix(short)
    return SKLEARN.get(name, name)


def citation(paper):
    """A pattern for a paper of links.toml: between the surnames and the year may stand where it appeared."""
    surnames, _, year = paper.rpartition(" ")
    joined = r"(?:,|,?\s+and)\s+".join(
        re.escape(surname) for surname in surnames.split(", ")
    )
    return rf"\b{joined}(?:['’]s)?[,\s(]+(?:[^;:()]{{1,45}}?[,\s]+)?{re.escape(year)}\b".replace(
        r"\ ", r"\s+"
    )


PAPERS = list(LINKS["papers"].items())
CITATION = re.compile(
    "|".join(f"(?P<p{i}>{citation(paper)})" for i, (paper, _) in enumerate(PAPERS))
)


def papers_in(text):
    """(start, end, address) of each paper cited in a text."""
    for found in CITATION.finditer(text):
        yield found.start(), found.end(), PAPERS[int(found.lastgroup[1:])][1]
