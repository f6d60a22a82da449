"""Reading C well enough for the source checks: no comments, no literals."""

import re

_TOKEN = re.compile(
    r"//[^\n]*|/\*.*?\*/|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'", re.S)


def _blank(match: "re.Match[str]") -> str:
    text = match.group(0)
    newlines = "\n" * text.count("\n")
    if text.startswith("/"):
        return " " + newlines
    return text[0] + text[-1]


def strip_comments(text: str) -> str:
    """The text without comments and with empty literals; lines keep their number."""
    return _TOKEN.sub(_blank, text)


def functions(text: str) -> "list[tuple[int, str, str]]":
    """(line, head, body) of each top-level {...} block of stripped text."""
    found = []
    depth = 0
    head_start = 0
    body_start = 0
    for i, char in enumerate(text):
        if char == "{":
            if depth == 0:
                body_start = i
            depth += 1
        elif char == "}":
            depth -= 1
            if depth == 0:
                head = text[head_start:body_start]
                line = text.count("\n", 0, body_start) + 1
                found.append((line, head.strip(), text[body_start:i + 1]))
                head_start = i + 1
        elif char == ";" and depth == 0:
            head_start = i + 1
    return found
