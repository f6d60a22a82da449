"""Changes single values of a card's text and leaves every other byte alone.

A library that reads and writes YAML again would keep the comments and still
lay the rest out anew; here only the changed value's own text is written.
"""

from __future__ import annotations

import re
import typing

from fivegates.contract.nodes import Node, Pair, json_nodes, yaml_nodes
from fivegates.contract.render import block, entries, expanded, inline, item

__all__ = ["Path", "put", "take_out"]

Path = typing.Tuple[typing.Union[str, int], ...]
_GAP = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")  # in JSON there is no #
_LINE_END = re.compile(r"[ \t]*,?[ \t]*(?:#[^\r\n]*)?(?=\r?\n|\Z)")


class _Text:
    """A card's text, its nodes, and how it is laid out."""

    def __init__(self, text: str, is_json: bool) -> None:
        self.text = text
        self.is_json = is_json
        self.root = json_nodes(text) if is_json else yaml_nodes(text)
        self.newline = "\r\n" if "\r\n" in text else "\n"

    def line_start(self, at: int) -> int:
        return self.text.rfind("\n", 0, at) + 1

    def line_end(self, at: int) -> int:
        """Where a line ends, before its newline."""
        end = self.text.find("\n", at)
        end = len(self.text) if end < 0 else end
        return end - 1 if self.text[end - 1:end] == "\r" and end > at else end

    def next_line(self, at: int) -> int:
        end = self.text.find("\n", at)
        return len(self.text) if end < 0 else end + 1

    def column(self, at: int) -> int:
        return at - self.line_start(at)

    def before(self, at: int) -> str:
        return self.text[self.line_start(at):at]

    def own_line(self, at: int) -> bool:
        return not self.before(at).strip()

    def spliced(self, start: int, end: int, new: str) -> str:
        return self.text[:start] + new + self.text[end:]

    # ---- how the text is laid out

    def unit(self) -> int:
        """The spaces of one level of a YAML block."""
        for pair in self.root.pairs or ():
            if not pair.value.flow and pair.value.pairs:
                return max(self.column(pair.value.start), 1)
        return 2

    def json_unit(self) -> "str | None":
        """What indents a level of JSON; None: it is not laid out in lines."""
        first = self.root.pairs[0].start if self.root.pairs else 0
        indent = self.before(first)
        return indent if indent and not indent.strip() else None

    def brackets(self, value: object, at: int) -> str:
        """A value to stand between brackets, in a line that at is of."""
        unit = self.json_unit() if self.is_json else None
        if unit is None:
            return inline(value, self.is_json or self.text.lstrip()[:1] == "{")
        line = self.text[self.line_start(at):self.line_end(at)]
        indent = line[:len(line) - len(line.lstrip())]
        return (self.newline + indent).join(expanded(value, unit))

    def joined(self, lines: "list[str]", column: int) -> str:
        return (self.newline + " " * column).join(lines)

    # ---- changes

    def replaced(self, pair: "Pair | None", node: Node, parent: Node,
                 value: object, spread: bool = False) -> str:
        """With another value in a node's place; spread as added() has it."""
        lines = entries(value, self.unit()) if spread and isinstance(value, dict) else (
            block(value, self.unit()))
        if parent.flow or lines is None or pair is None:
            return self.spliced(node.start, node.end,
                                self.brackets(value, node.start))
        if not node.flow:
            return self.spliced(node.start, node.end, self.joined(
                lines, self.column(node.start)))
        # What stood behind the colon gives way; a comment there stays.
        column = self.column(pair.start) + self.unit()
        colon = self.text.index(":", pair.end) + 1
        rest = self.text[node.end:self.line_end(node.end)].rstrip()
        return self.spliced(colon, self.line_end(node.end), (
            " " + rest.lstrip() if rest else "") + self.newline + " " * column
            + self.joined(lines, column))

    def added(self, node: Node, key: "str | int", value: object,
              spread: bool) -> str:
        """With one more pair or item at the end of a map or list that has some.

        spread: a map in a YAML block gets a key a line, however short it is.
        """
        children = ([(one.start, one.value.end) for one in node.pairs or ()]
                    or [(one.start, one.end) for one in node.items or ()])
        start, end = children[-1]
        if node.flow:
            return self._added_flow(node, key, value, start, end)
        if isinstance(key, int):
            column, lines = self.column(node.start), item(value, self.unit())
        else:
            column, lines = self.column(start), entries({key: value}, self.unit(),
                                                        spread)
        at = self.line_end(end)
        return self.spliced(at, at, self.newline + " " * column
                            + self.joined(lines, column))

    def _added_flow(self, node: Node, key: "str | int", value: object,
                    start: int, end: int) -> str:
        new = self.brackets(value, start)
        if isinstance(key, str):
            quoted = self.is_json or self.text.lstrip()[:1] == "{"
            new = f"{inline(key, quoted)}: {new}"
        gap = _GAP.match(self.text, end)
        assert gap is not None
        has_comma = self.text[gap.end():gap.end() + 1] == ","
        tail = _LINE_END.match(self.text, gap.end() if has_comma else end)
        comma = "" if has_comma else ","
        if not self.own_line(start):
            at = gap.end() + 1 if has_comma else end
            return self.spliced(at, at, f"{comma} {new}")
        new = self.newline + self.before(start) + new
        if tail is None:  # the bracket closes on the same line
            at = gap.end() + 1 if has_comma else end
            return self.spliced(at, at, comma + new)
        return self.spliced(end, tail.end(), comma
                            + self.text[end:tail.end()] + new)

    def without(self, node: Node, index: int) -> str:
        """Without one pair of a map."""
        pairs = node.pairs or []
        pair, end = pairs[index], pairs[index].value.end
        if len(pairs) == 1:
            return self.spliced(node.start, node.end, "{}")
        after = pairs[index + 1] if index + 1 < len(pairs) else None
        if node.flow:
            return self._without_flow(pairs[index - 1], pair, after)
        if self.own_line(pair.start):
            return self.spliced(self.line_start(pair.start), self.next_line(end), "")
        # The first key stands behind a dash: the next one takes its place.
        assert after is not None
        moved = self.text[after.start:self.line_end(after.value.end)]
        text = self.spliced(self.line_start(after.start),
                            self.next_line(after.value.end), "")
        return text[:pair.start] + moved + text[self.line_end(end):]

    def _without_flow(self, before: Pair, pair: Pair, after: "Pair | None") -> str:
        tail = _LINE_END.match(self.text, pair.value.end)
        if self.own_line(pair.start) and tail is not None:
            text = self.spliced(self.line_start(pair.start),
                                self.next_line(tail.end()), "")
            if after is None:
                comma = self.text.index(",", before.value.end)
                text = text[:comma] + text[comma + 1:]
            return text
        if after is not None:
            return self.spliced(pair.start, after.start, "")
        return self.spliced(before.value.end, pair.value.end, "")


def _found(root: Node, path: Path) -> "tuple[Node, int]":
    """The deepest node on a path that there is, and how deep that is."""
    node = root
    for depth, key in enumerate(path):
        child = node.child(key)
        if child is None:
            return node, depth
        node = child
    return node, len(path)


def _at(root: Node, path: Path) -> "tuple[Node, Pair | None]":
    """The node a path's last one is in, and its pair if it is in a map."""
    parent, _ = _found(root, path[:-1])
    return parent, next((pair for pair in parent.pairs or ()
                         if pair.key == path[-1]), None)


def put(text: str, is_json: bool, path: Path, value: object, old: object) -> str:
    """The text with a value at a path, made where it is not there yet.

    old: what is there now, None where nothing is. Of a map that replaces a map
    only what differs is written. An item of a list is added at its end.
    """
    if value == old and old is not None:
        return text
    whole = _Text(text, is_json)
    node, depth = _found(whole.root, path)
    if depth == len(path):
        if isinstance(value, dict) and value and isinstance(old, dict) and old:
            for key, one in value.items():
                text = put(text, is_json, (*path, key), one, old.get(key))
            for key in old:
                if key not in value:
                    text = take_out(text, is_json, (*path, key))
            return text
        parent, pair = _at(whole.root, path)
        return whole.replaced(pair, node, parent, value)
    for key in reversed(path[depth + 1:]):
        value = [value] if isinstance(key, int) else {key: value}
    key = path[depth]
    if node.pairs or node.items:
        return whole.added(node, key, value, depth + 2 < len(path))
    parent, pair = _at(whole.root, path[:depth])
    return whole.replaced(
        pair, node, parent, [value] if isinstance(key, int) else {key: value},
        depth + 1 < len(path))


def take_out(text: str, is_json: bool, path: Path) -> str:
    """The text without the key that a path ends with, and its value."""
    whole = _Text(text, is_json)
    node, _ = _found(whole.root, path[:-1])
    index = next(i for i, pair in enumerate(node.pairs or ())
                 if pair.key == path[-1])
    return whole.without(node, index)
