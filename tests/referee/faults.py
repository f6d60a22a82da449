"""What a route can do to a request. Each function makes a fault for a script.

A fault bills as providers do: an error answer bills nothing; an answer that
was begun bills its prompt and the tokens made, whether or not they arrive. A
whole answer is made to its end even when the client has left; a stream stops
when the server notices.
"""

from __future__ import annotations

import typing

from referee.provider import WORDS, Exchange, Fault, Json

__all__ = ["content_filter", "context_length", "cut", "cut_body",
           "empty_choices", "error", "error_event", "flapping", "hang",
           "malformed", "no_sentinel", "ok", "pings", "prefill_rejected",
           "quota_exhausted", "quota_in_stream", "rate_limited", "refusal",
           "reset", "tool_call", "too_large", "unavailable"]

GAP_S = 0.01  # between the words of a stream


def _named(name: str, fault: Fault) -> Fault:
    fault.__name__ = name
    return fault


async def _words(x: Exchange, count: int, gap_s: float) -> None:
    for i, word in enumerate(x.words[:count]):
        if i:
            await x.pause(gap_s)
        x.bill(output=1)
        await x.event(x.chunk({"content": word if i == 0 else " " + word}))
        x.request.sent_tokens += 1


async def _finish(x: Exchange, reason: str) -> None:
    await x.event(x.chunk({}, reason))
    if (x.request.body.get("stream_options") or {}).get("include_usage"):
        await x.event({**x.chunk({}), "choices": [], "usage": x.usage()})
    await x.raw("data: [DONE]\n\n")
    x.request.whole = True
    await x.end_stream()


def ok(first_s: float = 0.02, gap_s: float = GAP_S, words: int = WORDS,
       name: str = "ok") -> Fault:
    """A good answer; its first byte comes after first_s."""
    async def play(x: Exchange) -> None:
        x.words = [x.words[0].rpartition(".")[0] + f".{i}" for i in range(words)]
        x.request.text = " ".join(x.words)
        x.bill(prompt=True)
        if x.streamed:
            await x.pause(first_s)
            await x.begin_stream()
            await x.event(x.chunk({"role": "assistant", "content": ""}))
            await _words(x, words, gap_s)
            await _finish(x, "stop")
            return
        await x.pause(first_s, deaf=True)
        x.bill(output=words)
        await x.json(200, x.completion({"content": x.request.text}))
        x.request.sent_tokens = words
        x.request.whole = True
    return _named(name, play)


def error(status: int, kind: str, code: "str | None", message: str,
          headers: "dict[str, str] | None" = None, after_s: float = 0.0,
          name: str = "") -> Fault:
    """An error answer. It bills nothing."""
    async def play(x: Exchange) -> None:
        await x.pause(after_s)
        await x.json(status, {"error": {"message": message, "type": kind,
                                        "code": code, "param": None}}, headers)
    return _named(name or str(status), play)


def rate_limited(headers: "dict[str, str] | None" = None) -> Fault:
    return error(429, "requests", "rate_limit_exceeded",
                 "Rate limit reached for requests per minute.", headers)


def unavailable(after_s: float = 0.0) -> Fault:
    return error(503, "server_error", None,
                 "The service is unavailable for a moment.", after_s=after_s)


def quota_exhausted() -> Fault:
    return error(429, "insufficient_quota", "insufficient_quota",
                 "You exceeded your current quota; check plan and billing.",
                 name="no money")


def context_length(limit: int, asked: int) -> Fault:
    return error(400, "invalid_request_error", "context_length_exceeded",
                 f"This model's maximum context length is {limit} tokens; your "
                 f"messages resulted in {asked} tokens.", name="context length")


def content_filter() -> Fault:
    return error(400, "invalid_request_error", "content_filter",
                 "The prompt triggered the content management policy.",
                 name="content filter")


def prefill_rejected() -> Fault:
    return error(400, "invalid_request_error", None,
                 "This model does not support assistant message prefill; the "
                 "conversation must end with a user message.",
                 name="prefill rejected")


def too_large(limit: int, asked: int) -> Fault:
    """A 429 that waiting never helps."""
    return error(429, "tokens", "rate_limit_exceeded",
                 "Request too large for this model on tokens per min (TPM): "
                 f"Limit {limit}, Requested {asked}.", name="too large")


def reset() -> Fault:
    """The connection dies before any head; the prompt was read."""
    async def play(x: Exchange) -> None:
        x.bill(prompt=True)
        await x.pause(0.05)
        x.reset()
    return _named("reset", play)


def hang(seconds: float = 30.0) -> Fault:
    """No answer at all. The work is done, and billed, for nobody."""
    async def play(x: Exchange) -> None:
        x.bill(prompt=True, output=WORDS)
        await x.pause(seconds)
    return _named("hang", play)


def cut(words: int, stall_s: "float | None" = None) -> Fault:
    """A stream that dies after some words, or goes silent for stall_s."""
    async def play(x: Exchange) -> None:
        x.bill(prompt=True)
        await x.begin_stream()
        await x.event(x.chunk({"role": "assistant", "content": ""}))
        await _words(x, words, GAP_S)
        await x.pause(stall_s or 0.05)
        x.reset()
    return _named("stall" if stall_s else "cut", play)


def cut_body() -> Fault:
    """A whole answer, made and billed, of which half arrives."""
    async def play(x: Exchange) -> None:
        x.bill(prompt=True, output=WORDS)
        await x.pause(0.02, deaf=True)
        await x.json(200, x.completion({"content": x.request.text}), keep=120)
        await x.pause(0.02)
        x.reset()
    return _named("body cut", play)


def no_sentinel(words: int) -> Fault:
    """A stream that stops early and ends politely: no finish reason, no
    [DONE], and a correct last chunk of HTTP."""
    async def play(x: Exchange) -> None:
        x.bill(prompt=True)
        await x.begin_stream()
        await x.event(x.chunk({"role": "assistant", "content": ""}))
        await _words(x, words, GAP_S)
        await x.end_stream()
    return _named("no sentinel", play)


def malformed() -> Fault:
    """A broken event before the first word; the rest never makes sense."""
    async def play(x: Exchange) -> None:
        x.bill(prompt=True)
        await x.begin_stream()
        await x.event(x.chunk({"role": "assistant", "content": ""}))
        await x.raw('data: {"id": "c1", "object": "chat.completion.chu\n\n')
        await x.pause(0.05)
        await x.end_stream()
    return _named("malformed", play)


def _in_stream(name: str, body: Json, lead: int) -> Fault:
    async def play(x: Exchange) -> None:
        await x.begin_stream()
        for _ in range(lead):
            x.bill(prompt=True)
            await x.event(x.chunk({"role": "assistant", "content": ""}))
        await x.event({"error": body})
        await x.end_stream()
    return _named(name, play)


def quota_in_stream() -> Fault:
    """200, and the only event says that the account is empty."""
    return _in_stream("quota in 200", {
        "message": "You exceeded your current quota.", "param": None,
        "type": "insufficient_quota", "code": "insufficient_quota"}, 0)


def error_event() -> Fault:
    """200, a first event as it should be, and an error as the second."""
    return _in_stream("error event", {
        "message": "The server had an error while processing your request.",
        "type": "server_error", "code": "server_error", "param": None}, 1)


def pings(every_s: float, for_s: float) -> Fault:
    """A stream of nothing but keep-alive comments."""
    async def play(x: Exchange) -> None:
        x.bill(prompt=True)
        await x.begin_stream()
        for _ in range(int(for_s / every_s)):
            await x.raw(": keep-alive\n\n")
            await x.pause(every_s)
        x.reset()
    return _named("pings", play)


def empty_choices() -> Fault:
    """200 with an answer that has no choices; the prompt is billed."""
    async def play(x: Exchange) -> None:
        x.bill(prompt=True)
        await x.json(200, x.completion(None))
    return _named("no choices", play)


def refusal() -> Fault:
    """200: the model says no, in the field made for that."""
    async def play(x: Exchange) -> None:
        x.bill(prompt=True, output=6)
        await x.json(200, x.completion({
            "content": None, "refusal": "I cannot help with that request."}))
        x.request.sent_tokens = 6
    return _named("refusal", play)


def tool_call(needs: int = 0) -> Fault:
    """The model asks for the refund tool; with a max_tokens below needs its
    arguments are cut."""
    async def play(x: Exchange) -> None:
        fits = x.request.body.get("max_tokens", 0) >= needs
        arguments = '{"order": "17"}' if fits else '{"order": "1'
        x.bill(prompt=True, output=8)
        await x.json(200, x.completion({"content": None, "tool_calls": [{
            "id": f"call_{x.request.number}", "type": "function",
            "function": {"name": "refund", "arguments": arguments}}]},
            "tool_calls" if fits else "length"))
        x.request.sent_tokens = 8
        x.request.whole = fits
        x.request.fault = "tool call" if fits else "cut tool call"
    return _named("tool call", play)


def flapping(up_s: float, down_s: float) -> Fault:
    """Good for up_s, 503 for down_s, and so on, from the first
    request on."""
    good, bad = ok(), unavailable()

    async def play(x: Exchange) -> None:
        at = x.request.at - x.world.journal.requests[0].at
        await (good if at % (up_s + down_s) < up_s else bad)(x)
    return _named("flapping", play)


def after_tool(first: Fault, then: "typing.Sequence[Fault]") -> "list[Fault]":
    """first for the question; then, in order, once a tool has answered."""
    seen: "dict[str, int]" = {}

    async def play(x: Exchange) -> None:
        if x.request.body["messages"][-1]["role"] != "tool":
            await first(x)
            return
        nth = seen[x.world.name] = seen.get(x.world.name, 0) + 1
        fault = then[min(nth, len(then)) - 1]
        x.request.fault = getattr(fault, "__name__", "?")
        await fault(x)

    return [_named("agent", play)]
