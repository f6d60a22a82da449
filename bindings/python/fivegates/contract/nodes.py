"""Where each value of a card stands in its text, YAML or JSON."""

from __future__ import annotations

import dataclasses
import json
import re
import typing

__all__ = ["Node", "Pair", "json_nodes", "yaml_nodes"]

_BLANK = re.compile(r"[ \t\r\n]*")
_JSON = json.JSONDecoder(strict=False)


@dataclasses.dataclass
class Pair:
    """A key of a map and its value: the key's place, its value's node."""

    key: str
    start: int
    end: int
    value: "Node"


@dataclasses.dataclass
class Node:
    """A value: text[start:end], and what is in it.

    flow: written between brackets, as all of JSON is. Of a block the end is
    that of the last thing in it, without comments and blank lines behind it.
    """

    start: int
    end: int
    flow: bool = True
    pairs: "list[Pair] | None" = None
    items: "list[Node] | None" = None

    def child(self, key: "str | int") -> "Node | None":
        """The value of a key, or the item of a number; None: there is none."""
        if isinstance(key, int):
            return self.items[key] if self.items and key < len(self.items) else None
        return next((pair.value for pair in self.pairs or () if pair.key == key),
                    None)


def yaml_nodes(text: str) -> Node:
    """The nodes of YAML that loads as a card: one document, no aliases."""
    import yaml

    loader: typing.Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return _of_yaml(text, yaml.compose(text, Loader=loader))


def _of_yaml(text: str, found: typing.Any) -> Node:
    start, end = found.start_mark.index, found.end_mark.index
    if isinstance(found.value, str):
        # A block text is said to end where the next line begins.
        return Node(start, start + len(text[start:end].rstrip("\r\n"))
                    if found.style in ("|", ">") else end)
    flow = bool(found.flow_style)
    if found.id == "sequence":
        items = [_of_yaml(text, one) for one in found.value]
        last = items[-1].end if items else end
        return Node(start, end if flow else last, flow, None, items)
    pairs = [Pair(key.value, key.start_mark.index, key.end_mark.index,
                  _of_yaml(text, value)) for key, value in found.value]
    last = pairs[-1].value.end if pairs else end
    return Node(start, end if flow else last, flow, pairs)


def json_nodes(text: str) -> Node:
    """The nodes of JSON that loads as a card."""
    return _of_json(text, _skip(text, 0))


def _skip(text: str, at: int) -> int:
    found = _BLANK.match(text, at)
    assert found is not None
    return found.end()


def _of_json(text: str, start: int) -> Node:
    if text[start] not in "{[":
        return Node(start, _JSON.raw_decode(text, start)[1])
    node = Node(start, start)
    if text[start] == "{":
        node.pairs = []
    else:
        node.items = []
    at = _skip(text, start + 1)
    while text[at] not in "}]":
        if node.pairs is not None:
            key, end = _JSON.raw_decode(text, at)
            value = _of_json(text, _skip(text, _skip(text, end) + 1))
            node.pairs.append(Pair(key, at, end, value))
        else:
            value = _of_json(text, at)
            typing.cast("list[Node]", node.items).append(value)
        at = _skip(text, value.end)
        if text[at] == ",":
            at = _skip(text, at + 1)
    node.end = at + 1
    return node
