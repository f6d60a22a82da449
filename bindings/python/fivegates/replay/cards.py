"""Cards to replay by: loaded, changed in single keys, compared in plain words."""

from __future__ import annotations

import importlib.resources
import json
import pathlib
import typing

from fivegates._core import Policy
from fivegates.errors import PolicyError
from fivegates.replay.lines import Json, ReplayError
from fivegates.yaml import to_json

__all__ = ["Card", "differences", "load", "what_if"]

_NOTHING: typing.Any = object()


class Card(typing.NamedTuple):
    """A card: its name for people, what it says, what the engine made of it."""

    name: str
    card: Json
    policy: Policy

    @property
    def fingerprint(self) -> str:
        return self.policy.fingerprint


def load(path: str) -> Card:
    """A card file, JSON or YAML. Raises ReplayError and PolicyError."""
    try:
        text = pathlib.Path(path).read_text(encoding="utf-8-sig")
        policy = Policy.load(path)
    except UnicodeDecodeError:
        raise ReplayError(f"{path}: the text is not UTF-8; save it as UTF-8"
                          ) from None
    except OSError as exc:
        raise ReplayError(f"{path}: {exc.strerror or exc}; name a card that can "
                          "be read") from None
    except PolicyError as exc:
        exc.file = path
        raise
    if path.lower().endswith((".yaml", ".yml")) or text.lstrip()[:1] != "{":
        text = to_json(text)[0]
    return Card(path, json.loads(text), policy)


def what_if(base: Card, changes: "typing.Sequence[str]") -> Card:
    """The card with single keys changed: `retry_bucket.cap=5`.

    A value is JSON, else text; `=null` takes the key out, so that its default
    holds. A place in a list is its number, from 0. Raises ReplayError for a
    change that cannot be read, PolicyError for one the card does not allow.
    """
    card: Json = json.loads(json.dumps(base.card))
    for change in changes:
        path, mark, text = change.partition("=")
        if not mark or not path.strip("."):
            raise ReplayError(f"--what-if {change}: not a change; write it as "
                              "retry_bucket.cap=5")
        try:
            value = json.loads(text)
        except ValueError:
            value = text
        _set(card, path.split("."), value, change)
    try:
        policy = Policy.loads(card)
    except PolicyError as exc:
        raise ReplayError(f"--what-if {', '.join(changes)}: {exc.path}: "
                          f"{exc.message}") from None
    return Card(f"{base.name} with {', '.join(changes)}", card, policy)


def _set(at: typing.Any, path: "list[str]", value: object, change: str) -> None:
    *parents, last = path
    for i, key in enumerate(parents):
        if isinstance(at, dict):
            at = at.setdefault(key, {})
        elif isinstance(at, list) and key.isdigit() and int(key) < len(at):
            at = at[int(key)]
        else:
            at = None
        if not isinstance(at, (dict, list)):
            raise ReplayError(f"--what-if {change}: {'.'.join(path[:i + 1])} "
                              "holds no keys; see `fivegates check`")
    if isinstance(at, dict) and value is None:
        at.pop(last, None)
    elif isinstance(at, dict):
        at[last] = value
    elif last.isdigit() and int(last) < len(at):
        at[int(last)] = value
    else:
        raise ReplayError(f"--what-if {change}: the list has no place {last}; "
                          f"its places are 0 to {len(at) - 1}")


# ---- what is different, in words


def _flat(value: typing.Any, path: "tuple[str, ...]" = (),
          ) -> "typing.Iterator[tuple[tuple[str, ...], typing.Any]]":
    """The leaves of a card; a list of plain values is one leaf."""
    if isinstance(value, dict) and value:
        for key, one in value.items():
            yield from _flat(one, (*path, str(key)))
    elif isinstance(value, list) and any(isinstance(one, dict) for one in value):
        for index, one in enumerate(value):
            yield from _flat(one, (*path, _name(one, index)))
    else:
        yield path, value


def _name(one: typing.Any, index: int) -> str:
    """A contract by what it joins, a ladder step by its word, else its place."""
    if isinstance(one, dict) and "workflow" in one and "route" in one:
        return f"{one['workflow']}->{one['route']}"
    if isinstance(one, dict) and "step" in one:
        return f"{index + 1} {one['step']}"
    return str(index + 1)


class _Schema:
    """What the card's JSON Schema says of a key."""

    def __init__(self) -> None:
        file = importlib.resources.files("fivegates") / "card.schema.json"
        self.root: Json = json.loads(file.read_text(encoding="utf-8"))

    def at(self, path: "typing.Sequence[str]") -> Json:
        node = self.root
        for key in path:
            node = self._down(node, key)
        return node

    def _down(self, node: Json, key: str) -> Json:
        for one in self._choices(node):
            if key in one.get("properties", {}):
                return self._resolved(one["properties"][key])
            if isinstance(one.get("items"), dict):
                return self._resolved(one["items"])
            if isinstance(one.get("additionalProperties"), dict):
                return self._resolved(one["additionalProperties"])
        return {}

    def _choices(self, node: Json) -> "list[Json]":
        out = [node]
        for word in ("anyOf", "oneOf", "allOf"):
            out += [self._resolved(one) for one in node.get(word, [])]
        return out

    def _resolved(self, node: Json) -> Json:
        name = node.get("$ref", "").rpartition("/")[2]
        return {**self.root["$defs"].get(name, {}), **node} if name else node


def _said(value: typing.Any, default: typing.Any) -> str:
    if value is not _NOTHING:
        return json.dumps(value, ensure_ascii=False)
    if default is not _NOTHING:
        return f"{json.dumps(default, ensure_ascii=False)} (the default)"
    return "not said"


def differences(old: Json, new: Json) -> "list[str]":
    """What another card says otherwise, one sentence for each key.

    A key that states its default, in one card only, is no difference.
    """
    schema = _Schema()
    before, after = dict(_flat(old)), dict(_flat(new))
    out = []
    for path in dict.fromkeys([*before, *after]):
        spec = schema.at(path)
        default = spec.get("default", _NOTHING)
        was, will = before.get(path, _NOTHING), after.get(path, _NOTHING)
        if (default if was is _NOTHING else was) == (
                default if will is _NOTHING else will):
            continue
        about = str(spec.get("description", "")).rstrip(".")
        out.append(f"{'.'.join(path)}: {_said(was, default)} becomes "
                   f"{_said(will, default)}" + (f" ({about})" if about else ""))
    return out
