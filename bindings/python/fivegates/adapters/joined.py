"""A refusal that is also the exception a library's callers already catch."""

from __future__ import annotations

import typing

from fivegates.errors import Refused

__all__ = ["joined"]


def joined(refused: Refused, error: BaseException, *more: type,
           **fields: typing.Any) -> Refused:
    """The refusal as an exception of error's class, and of more.

    It has error's attributes (status_code, response, ...), then fields, then
    what a refusal has: decision, call, answer. Where Python cannot join the
    classes it is the refusal itself.
    """
    bases = tuple(dict.fromkeys((type(error), *more)))
    try:
        kind = _class(type(refused), *bases)
    except TypeError:  # two layouts, or no order of the bases
        return refused
    out = kind.__new__(kind)
    out.__dict__.update(error.__dict__)
    out.__dict__.update(fields)
    out.__dict__.update(refused.__dict__)
    out.args = refused.args
    return out


_CLASSES: "dict[tuple[type, ...], type[Refused]]" = {}


def _class(*bases: type) -> "type[Refused]":
    """A class of these bases; made once."""
    if bases not in _CLASSES:
        _CLASSES[bases] = type(
            f"{bases[0].__name__}{bases[1].__name__}", bases,
            {"__module__": __name__,
             "__doc__": f"What fivegates decided, as a {bases[1].__name__}."})
    return _CLASSES[bases]
