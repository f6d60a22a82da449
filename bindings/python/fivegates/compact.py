"""A shorter prompt for the ladder's `compact`: the oldest turns left out.

    shorter = compact(request, 4000)      # None: it cannot be made to fit

The same rules as in the gateway (bindings/lua, fivegates/resty/compact.lua),
for chat completions, responses, messages and generateContent. A turn begins
with what the user says and goes on to what he says next: answers, thoughts,
calls of tools and their results in it stay together or go together, and are
never changed. So what is left is a conversation that the API takes.

What always stays: system and developer messages, whatever stands beside the
messages, and all from the user's last words on. In a loop of tools that is the
loop: a model that has forgotten what it did would do it again.
"""

from __future__ import annotations

import re
import typing

__all__ = ["compact", "estimate"]

Json = typing.Dict[str, typing.Any]
Count = typing.Callable[[Json], int]

# Where each API has its turns.
_TURNS = ("contents", "messages", "input")
# The server has more of the prompt than the request: nobody here knows how much.
_ELSEWHERE = ("previous_response_id", "conversation", "cachedContent", "prompt")

# The estimate, which the text's own spelling does not change: bytes of UTF-8
# for a token of text, tokens of an image or another attachment.
_BYTES_PER_TOKEN = 4
_ATTACHMENT_TOKENS = 1000
_ATTACHMENTS = frozenset((
    "image", "image_url", "input_image", "file", "input_file", "document",
    "input_audio", "video_url"))
_HOLDERS = frozenset(("url", "image_url", "data", "file_data"))
_LONG = 2000  # bytes; a shorter text is a text
_BASE64 = re.compile(r"(?:data:[^,]*;base64,)?[A-Za-z0-9+/=_-]*\Z")
# Bytes of what stands around a value: quotes, commas, braces; and of a number.
_QUOTES, _COMMA, _BRACES, _WORD = 3, 1, 2, 5

# Members that join a call of a tool, its approval and its result.
_LINKS = ("id", "call_id", "tool_call_id", "tool_use_id", "approval_request_id")


# ---- size


def _plain(value: typing.Any) -> typing.Any:
    """An SDK's object as what it sends; anything else as it is."""
    dump = getattr(value, "model_dump", None)
    return value if dump is None else dump(mode="json", exclude_none=True)


def _is_attachment(value: Json) -> bool:
    kind = value.get("type")
    return (isinstance(kind, str) and kind in _ATTACHMENTS
            or "inlineData" in value or "fileData" in value)


def _size(value: typing.Any, name: str, inside: bool) -> "tuple[int, int]":
    """Bytes of a value without its attachments, and how many those are.
    inside: it is a part of one, which is counted."""
    if isinstance(value, str):
        raw = len(value.encode("utf-8", "surrogatepass"))
        if raw > _LONG and name in _HOLDERS and _BASE64.match(value):
            return _QUOTES, 0 if inside else 1
        return raw + _QUOTES, 0
    value = _plain(value)
    size, count = _BRACES, 0
    if isinstance(value, dict):
        if not inside and _is_attachment(value):
            inside, count = True, 1
        for key, one in value.items():
            inner, more = _size(one, str(key), inside)
            size += inner + len(str(key).encode()) + _QUOTES + _COMMA
            count += more
    elif isinstance(value, (list, tuple)):
        for one in value:
            inner, more = _size(one, name, inside)
            size += inner + _COMMA
            count += more
    else:
        size = _WORD
    return size, count


def estimate(body: "typing.Mapping[str, typing.Any]") -> int:
    """Tokens of a request, roughly: a quarter of its bytes, rounded up, and
    1000 for each image or other attachment."""
    size, count = _size(dict(body), "", False)
    return -(-size // _BYTES_PER_TOKEN) + count * _ATTACHMENT_TOKENS


# ---- turns


def _parts(turn: Json) -> "list[Json]":
    for found in (turn.get("content"), turn.get("parts")):
        if found and isinstance(found, (list, tuple)):
            return [one for one in map(_plain, found) if isinstance(one, dict)]
    return []


def _is_result(part: Json) -> bool:
    kind = part.get("type")
    return (isinstance(kind, str) and kind.endswith("tool_result")
            or "functionResponse" in part)


def _kind(turn: Json) -> str:
    """user: what the user says; stays: not part of the talk; else other."""
    role, kind = turn.get("role"), turn.get("type")
    if role in ("system", "developer") or kind == "compaction":
        return "stays"
    if role is None and "parts" in turn:
        role = "user"
    said = role == "user" and kind in (None, "message")
    return ("user" if said and not any(map(_is_result, _parts(turn)))
            else "other")


def _links(turn: Json) -> "set[str]":
    """What joins this to others: the ids of calls."""
    found: "set[str]" = set()
    calls = turn.get("tool_calls")
    for one in [turn, *_parts(turn),
                *(map(_plain, calls) if isinstance(calls, (list, tuple)) else ())]:
        if not isinstance(one, dict):
            continue
        for place in (one, one.get("functionCall"), one.get("functionResponse")):
            if isinstance(place, dict):
                found.update(place[name] for name in _LINKS
                             if isinstance(place.get(name), str))
    return found


def _cuts(turns: "list[Json]") -> "list[int]":
    """Where the talk may begin instead: with words of the user's, behind
    others of the talk, and with no call on one side and its result on the
    other."""
    last: "dict[str, int]" = {}
    for place, turn in enumerate(turns):
        for link in _links(turn):
            last[link] = place
    cuts = []
    before, open_until = "stays", -1
    for place, turn in enumerate(turns):
        kind = _kind(turn)
        if kind == "user" and before == "other" and open_until < place:
            cuts.append(place)
        if kind != "stays":
            before = kind
        open_until = max([open_until, *(last[one] for one in _links(turn))])
        if any(part.get("type") == "compaction" for part in _parts(turn)):
            break  # it holds what went before
    return cuts


def compact(body: "typing.Mapping[str, typing.Any]", to_tokens: int,
            count: "Count | None" = None) -> "Json | None":
    """A request of no more than to_tokens, its oldest turns left out.

    body is a request's JSON, or the keyword arguments of an SDK; it is not
    changed. count(body) answers its tokens, and must count less for fewer
    turns; without it estimate() does. A body that fits is answered as it is.

    None: not to be had without touching what must stay, or the server keeps a
    part of the prompt. Then send nothing.
    """
    count = count or estimate
    whole = dict(body)
    name = next((n for n in _TURNS
                 if whole.get(n) and isinstance(whole[n], (list, tuple))), None)
    if any(whole.get(key) for key in _ELSEWHERE):
        return None
    if count(whole) <= to_tokens:
        return whole
    if name is None:
        return None
    turns = [_plain(one) for one in whole[name]]
    if not all(isinstance(one, dict) and one.get("type") != "item_reference"
               for one in turns):
        return None
    stays = [_kind(one) == "stays" for one in turns]

    def left(cut: int) -> Json:
        kept = [one for place, one in enumerate(whole[name])
                if place >= cut or stays[place]]
        return {**whole, name: kept}

    cuts = _cuts(turns)
    low, high = 0, len(cuts)
    while low < high:  # the first cut that is enough
        middle = (low + high) // 2
        if count(left(cuts[middle])) <= to_tokens:
            high = middle
        else:
            low = middle + 1
    return left(cuts[low]) if low < len(cuts) else None
