"""Hints for keywords that a class does not take, and for names that a module does not have."""

from __future__ import annotations

from abc import ABCMeta
from collections.abc import Callable, Collection, Mapping
from difflib import get_close_matches
from inspect import Signature, signature
from typing import Any, NoReturn

from kernelopt.errors import KeywordError
from kernelopt.support.checks import shown


class Hinting(ABCMeta):
    """A metaclass that explains which keyword or classmethod to use in place of an unknown keyword.

    The class's `_elsewhere` maps the keyword to one of its own, `_instead_of` to a sentence; a classmethod
    `from_<keyword>` is found by its name.
    """

    _elsewhere: Mapping[str, str] = {}
    _instead_of: Mapping[str, str] = {}

    def __call__(cls, *args: Any, **named: Any) -> Any:
        try:
            return super().__call__(*args, **named)
        except TypeError as error:
            unknown = [name for name in named if f"unexpected keyword argument {name!r}" in str(error)]
            known = list(cls.__signature__.parameters)
            if not unknown or unknown[0] in known:  # of a function that is called within
                raise
            got = f"{unknown[0]}={shown(named[unknown[0]])}"
            remedy = cls._instead(unknown[0], args, named, known)
            own = f", {', '.join(known)}" if known else ""
            expected = f"Expected keywords of {cls.__name__}{own}; got {got}."
            raise KeywordError(" ".join(filter(None, [expected, remedy]))) from error

    @property
    def __signature__(cls) -> Signature:
        """The signature of `__init__`, which `__call__` above would hide."""
        own = signature(cls.__init__)  # type: ignore[misc]
        return own.replace(parameters=list(own.parameters.values())[1:])

    def _instead(cls, name: str, args: tuple[Any, ...], named: Mapping[str, Any], known: Collection[str]) -> str | None:
        """What to write for an unknown keyword; None where that is not known."""
        if name in cls._elsewhere:
            return f"Write {cls._elsewhere[name]}={named[name]!r}."
        if name in cls._instead_of:
            return cls._instead_of[name]
        way = getattr(cls, f"from_{name}", None)
        if way is None:
            near = get_close_matches(name, known, n=1)
            return f"Did you mean {near[0]}?" if near else None
        alone = len(named) == 1 and not args and next(iter(signature(way).parameters)) == name
        given = [repr(named[name])] if alone else [*map(repr, args), *(f"{k}={v!r}" for k, v in named.items())]
        return f"Write {cls.__name__}.from_{name}({', '.join(given)})."


def no_such_name(
    module: str, elsewhere: Mapping[str, str], public: Collection[str], ending: str
) -> Callable[[str], NoReturn]:
    """A module's `__getattr__`, which says what to write in place of a name that other libraries use.

    elsewhere : what to write for a name in lower case, without underscores and without the `ending`; names of `public`
        are found in the same way. Python drops the message where a name is imported: `from module import name`.
    """

    def plain(name: str) -> str:
        return name.lower().replace("_", "").removesuffix(ending)

    def refuse(name: str) -> NoReturn:
        if not name.startswith("_"):
            instead = elsewhere.get(plain(name)) or next((own for own in public if plain(own) == plain(name)), None)
            if instead is not None:
                raise AttributeError(f"module {module!r} has no attribute {name!r}. Write {instead}.")
        raise AttributeError(f"module {module!r} has no attribute {name!r}")

    return refuse
