"""What a person pastes: `curl -i` output, or JSON evidence."""

from __future__ import annotations

import json
import re
import typing

__all__ = ["evidence_from_text"]

Evidence = typing.Dict[str, typing.Any]

_HEAD = re.compile(r"HTTP/[0-9.]+ +([0-9]{3})\b")
_CURL = re.compile(r"curl: \((\d+)\) (.*)")
# Keys of a labelled case that are not evidence.
_LABELS = ("id", "expect", "alt_owners", "why", "source", "tricky")


# How far a transfer came, by curl's own number; 28 tells it in its words.
_PHASES = {5: "connect", 6: "connect", 7: "connect", 35: "tls", 53: "tls",
           58: "tls", 60: "tls", 77: "tls", 83: "tls", 91: "tls", 55: "send",
           52: "read", 56: "read", 16: "read", 92: "read", 95: "read",
           18: "body", 23: "body", 61: "body"}


def _curl_error(text: str) -> "Evidence | None":
    """The line curl prints when the transfer itself failed."""
    found = _CURL.search(text)
    if found is None:
        return None
    code, message = int(found[1]), found[2].strip()
    phase = _PHASES.get(code, "unknown")
    if code == 28:
        early = re.match(r"(Connection|Resolving|Failed to connect)", message)
        phase = "connect" if early else "read"
    return {"phase": phase, "transport": {
        "lib": "libcurl", "code": code, "message": message}}


def _head(lines: "list[str]") -> "tuple[int, list[tuple[str, str]], list[str]]":
    """Status, headers and the lines of the body."""
    status = int(_HEAD.match(lines[0])[1])  # type: ignore[index]
    headers: "list[tuple[str, str]]" = []
    at = 1
    while at < len(lines) and lines[at].strip():
        name, colon, value = lines[at].partition(":")
        if colon:
            headers.append((name.strip(), value.strip()))
        at += 1
    return status, headers, lines[at + 1:]


def evidence_from_text(text: str) -> Evidence:
    """Evidence from pasted text; ValueError says what is wrong with it."""
    stripped = text.strip()
    if not stripped:
        raise ValueError("nothing was pasted; paste `curl -i` output or JSON "
                         "evidence")
    if stripped.startswith("{"):
        try:
            value = json.loads(stripped)
        except ValueError as exc:
            raise ValueError(f"the JSON evidence is broken: {exc}") from None
        if not isinstance(value, dict):
            raise ValueError("the evidence is not an object")
        if "status" not in value and "error" in value:
            raise ValueError("this is an answer's body, not evidence; paste "
                             "`curl -i` output, which has the status")
        return {key: one for key, one in value.items() if key not in _LABELS}
    lines = text.replace("\r\n", "\n").split("\n")
    # curl -v marks received head lines with "< "; curl -L prints every head.
    lines = [line[2:] if line.startswith("< ") else line for line in lines
             if not line.startswith(("* ", "> ", "{ ", "} "))]
    heads = [i for i, line in enumerate(lines) if _HEAD.match(line)]
    transport = _curl_error(text)
    if not heads:
        if transport is None:
            raise ValueError("no status line such as HTTP/1.1 429; paste the "
                             "output of `curl -i`, or JSON evidence")
        return transport
    status, headers, rest = _head(lines[heads[-1]:])
    body = "\n".join(line for line in rest if not _CURL.match(line)).strip("\n")
    kind = next((value for name, value in headers
                 if name.lower() == "content-type"), "")
    out: Evidence = {"phase": "response", "status": status,
                     "headers": headers, "body": body}
    if "event-stream" in kind:
        out["phase"] = "stream"
    if transport is not None:
        out["phase"] = "stream" if "event-stream" in kind else "body"
        out["transport"] = transport["transport"]
    return out
