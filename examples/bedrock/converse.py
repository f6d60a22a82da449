"""Bedrock's answers to converse and converse_stream, for the loopback provider.

    ok          a whole answer            early   a stream's error before text
    503, 429    an error answer           cut     a stream broken after a word
"""

from __future__ import annotations

import binascii
import json
import struct
import typing

from loopback import Request

Json = typing.Dict[str, typing.Any]
_ERRORS = {"429": "ThrottlingException", "503": "ServiceUnavailableException"}
_USAGE = {"inputTokens": 9, "outputTokens": 3, "totalTokens": 12}
_WORDS = ("Every ", "request ", "is ", "one ", "decision", ".")


def converse(request: Request, word: str, body: Json) -> None:
    if word in _ERRORS:
        request.json(int(word), {"message": "A fault."},
                     x_amzn_ErrorType=_ERRORS[word])
    elif request.path.endswith("/converse"):
        request.json(200, {
            "output": {"message": {"role": "assistant",
                                   "content": [{"text": "".join(_WORDS)}]}},
            "stopReason": "end_turn", "metrics": {"latencyMs": 1},
            "usage": _USAGE})
    else:
        _stream(request, word)


def _stream(request: Request, word: str) -> None:
    request.head(200, Content_Type="application/vnd.amazon.eventstream",
                 Transfer_Encoding="chunked")
    request.chunk(_event("messageStart", {"role": "assistant"}))
    if word == "early":
        request.chunk(_frame({
            ":message-type": "exception", ":exception-type":
            "throttlingException"}, {"message": "Too many tokens."}))
        request.chunk(b"")
        return
    for i, text in enumerate(_WORDS):
        request.chunk(_event("contentBlockDelta", {
            "contentBlockIndex": 0, "delta": {"text": text}}))
        if word == "cut" and i == 1:
            request.reset()
            return
    request.chunk(_event("messageStop", {"stopReason": "end_turn"}))
    request.chunk(_event("metadata", {"usage": _USAGE,
                                      "metrics": {"latencyMs": 1}}))
    request.chunk(b"")


def _event(name: str, value: Json) -> bytes:
    return _frame({":message-type": "event", ":event-type": name}, value)


def _frame(headers: "dict[str, str]", value: Json) -> bytes:
    """One message of AWS's event-stream encoding."""
    payload = json.dumps(value).encode()
    packed = b""
    for name, text in {**headers, ":content-type": "application/json"}.items():
        packed += struct.pack(f">B{len(name)}sBH", len(name), name.encode(), 7,
                              len(text)) + text.encode()
    head = struct.pack(">II", 16 + len(packed) + len(payload), len(packed))
    head += struct.pack(">I", binascii.crc32(head))
    body = head + packed + payload
    return body + struct.pack(">I", binascii.crc32(body))
