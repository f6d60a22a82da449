"""Strict reading of settings files: YAML or JSON, with the place of each error.

Nothing is guessed: an unknown key, a wrong type and a value out of its range
are errors that name the file, the line, the path and what to write instead.
"""

from __future__ import annotations

import difflib
import json
import math
import pathlib
import typing

from fivegates.errors import FivegatesError, PolicyError
from fivegates.yaml import place_of, to_json

__all__ = ["Node", "SettingsError", "read_file", "read_text", "read_value"]

Places = typing.Dict[str, typing.Tuple[int, int]]
_NAMES = {dict: "an object", list: "a list", str: "text", bool: "true or false"}


class SettingsError(FivegatesError):
    """A settings file or option that cannot be used; the text says where, why
    and what to do."""

    result = "settings"


class Node:
    """A value of a settings file, and where it stands."""

    def __init__(self, value: typing.Any, path: str, places: Places,
                 file: str) -> None:
        self.value = value
        self.path = path
        self._places = places
        self._file = file

    def error(self, message: str) -> SettingsError:
        """An error at this place."""
        line, column = place_of(self.path, self._places)
        place = f"{self._file}:{line}:{column}" if line else self._file
        at = f"{self.path}: " if self.path else ""
        return SettingsError(f"{place}: {at}{message}" if place
                             else f"{at}{message}")

    def _is(self, kind: type) -> typing.Any:
        if not isinstance(self.value, kind):
            raise self.error(f"must be {_NAMES[kind]}, not "
                             f"{_shown(self.value)}")
        return self.value

    def _child(self, value: typing.Any, name: str) -> "Node":
        path = f"{self.path}.{name}" if self.path else name
        return Node(value, path, self._places, self._file)

    def table(self, allowed: "typing.Iterable[str]") -> "dict[str, Node]":
        """The members of an object that has no others than those allowed."""
        keys = list(allowed)
        for key in self._is(dict):
            if key not in keys:
                near = difflib.get_close_matches(key, keys, 1)
                raise self._child(None, key).error(
                    f"no such key; did you mean {near[0]}?" if near else
                    "no such key; there are " + ", ".join(keys))
        return self.entries()

    def entries(self) -> "dict[str, Node]":
        """The members of an object whose keys are names of the user's."""
        return {key: self._child(value, key)
                for key, value in self._is(dict).items()}

    def items(self) -> "list[Node]":
        """The parts of a list that is not empty."""
        if not self._is(list):
            raise self.error("the list is empty; name at least one")
        return [Node(value, f"{self.path}[{i}]", self._places, self._file)
                for i, value in enumerate(self.value)]

    def text(self) -> str:
        return typing.cast(str, self._is(str))

    def flag(self) -> bool:
        return typing.cast(bool, self._is(bool))

    def number(self, low: float, high: float, whole: bool = False) -> float:
        """A number from low to high; whole: without a fraction."""
        kind = "a whole number" if whole else "a number"
        value = self.value
        if (isinstance(value, bool) or not isinstance(value, (int, float))
                or not math.isfinite(value) or not low <= value <= high
                or (whole and value != int(value))):
            raise self.error(f"must be {kind} from {low:g} to {high:g}, not "
                             f"{_shown(value)}")
        return int(value) if whole else float(value)


def _shown(value: typing.Any) -> str:
    text = json.dumps(value, default=str)
    return text if len(text) <= 40 else text[:37] + "..."


def read_text(text: str, file: str = "") -> Node:
    """A settings text in YAML or JSON."""
    if not text.strip():
        raise SettingsError(f"{file or 'settings'}: nothing is in it; see the "
                            "documentation for an example")
    try:
        document = to_json(text)
        value = json.loads(document.json)
    except PolicyError as exc:
        message = exc.message.replace("a card", "a file")
        place = f"{file}:{exc.line}:{exc.column}" if exc.line else file
        at = f"{exc.path}: " if exc.path else ""
        raise SettingsError(f"{place}: {at}{message}") from None
    except (ValueError, RecursionError) as exc:
        raise SettingsError(f"{file}: {exc}") from None
    return Node(value, "", document.places, file)


def read_value(value: typing.Any, file: str = "") -> Node:
    """Settings that a program or a request gives, not a file."""
    return Node(value, "", {}, file)


def read_file(path: str) -> Node:
    """A settings file."""
    try:
        text = pathlib.Path(path).read_text(encoding="utf-8-sig")
    except OSError as exc:
        raise SettingsError(f"{path}: {exc.strerror or exc}") from None
    except UnicodeDecodeError:
        raise SettingsError(f"{path}: the text is not UTF-8; save it as UTF-8"
                            ) from None
    return read_text(text, path)
