"""The pieces of an outer problem, read once for the values that its parameters have."""

from __future__ import annotations

from contextlib import suppress

from kernelopt.compiler.canonical_form import CanonicalForm
from kernelopt.compiler.reader import read
from kernelopt.compiler.separable import Outer
from kernelopt.errors import DCPError
from kernelopt.pieces.form import Pieces


def pieces_of(form: CanonicalForm, outer: Outer) -> Pieces | None:
    """The pieces, kept in the outer problem's notes; None where it is not read, as with a SmoothLoss."""
    if "pieces" not in outer.notes:
        outer.notes["pieces"] = None
        if not form.smooth:
            with suppress(DCPError):
                outer.notes["pieces"] = read(form.bare)
    found: Pieces | None = outer.notes["pieces"]
    return found
