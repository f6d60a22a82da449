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
    done: "list[Node]" = []
    levels: "list[Node]" = []
    keys: "list[typing.Any]" = []  # of each level: the key whose value is next

    def put(node: Node) -> None:
        if not levels:
            done.append(node)
        elif levels[-1].items is not None:
            levels[-1].items.append(node)
        else:
            key, keys[-1] = keys[-1], None
            typing.cast("list[Pair]", levels[-1].pairs).append(
                Pair(key.value, *_span(key), node))

    for event in yaml.parse(text, Loader=loader):
        start, end = _span(event)
        if isinstance(event, yaml.ScalarEvent):
            if levels and levels[-1].pairs is not None and keys[-1] is None:
                keys[-1] = event
                continue
            # A block text is said to end where the next line begins.
            put(Node(start, start + len(text[start:end].rstrip("\r\n"))
                     if event.style in ("|", ">") else end))
        elif isinstance(event, (yaml.MappingStartEvent, yaml.SequenceStartEvent)):
            is_map = isinstance(event, yaml.MappingStartEvent)
            node = Node(start, end, bool(event.flow_style),
                        [] if is_map else None, None if is_map else [])
            put(node)
            levels.append(node)
            keys.append(None)
        elif isinstance(event, (yaml.MappingEndEvent, yaml.SequenceEndEvent)):
            node = levels.pop()
            keys.pop()
            children = [one.value for one in node.pairs or ()] or node.items
            if node.flow:
                node.end = end
            elif children:
                node.end = children[-1].end
    return done[0]


def _span(event: typing.Any) -> "tuple[int, int]":
    return event.start_mark.index, event.end_mark.index


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
