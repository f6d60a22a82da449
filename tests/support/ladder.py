"""The ladder seen live: a provider that fails as it is told, the SDKs that ask
it, and what each step must have made of a request.

Shared by the transport's test (python/test_ladder_live.py) and the gateway's
(openresty/test_ladder.py): the same card, requests and expectations.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import typing
import urllib.request

Json = typing.Dict[str, typing.Any]
APIS = ("chat", "responses", "messages")
SPEED = {"first_token_s": 0, "prompt_tokens_per_s": 1e9, "tokens_per_s": 1e6,
         "output_tokens": 6}
EVIDENCE = {"fixtures": "sha256:" + "0" * 64, "cases": 10, "passed": 10,
            "score_ppm": 990000, "primary_score_ppm": 990000,
            "measured_at": "2026-11-01T00:00:00Z",
            "expires_at": "2126-11-01T00:00:00Z"}
SORRY = {"en": "Sorry, later.", "de": "Leider später.", "en-GB": "Sorry, mate."}


class Provider:
    """`fivegates provider` in a process of its own."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._seen = 0

    def _call(self, path: str, body: "Json | None" = None) -> Json:
        request = urllib.request.Request(
            self.url + path, None if body is None else json.dumps(body).encode(),
            {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=10) as answer:
            return typing.cast(Json, json.load(answer))

    def play(self, *main: str, small: str = "unavailable") -> None:
        """What the routes' next requests meet; what was asked is forgotten."""
        self._seen = self._call("/_control/state")["requests"]
        self._call("/_control/script", {"speed": SPEED, "routes": {
            "main": list(main), "small": [small]}})

    def _journal(self) -> "list[Json]":
        return typing.cast("list[Json]", self._call("/_control/journal")["requests"])

    def journal(self, route: str) -> "list[Json]":
        """What a route was asked since play()."""
        return [one for one in self._journal()[self._seen:]
                if one["path"].startswith(f"/{route}/")]

    def asked(self, route: str = "main") -> "list[Json]":
        """The bodies that came to a route since play()."""
        return [one["body"] for one in self.journal(route)]


@contextlib.contextmanager
def provider() -> "typing.Iterator[Provider]":
    with subprocess.Popen(
            [sys.executable, "-m", "fivegates", "provider", "--bodies"],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        try:
            yield Provider(process.stdout.readline().strip())
        finally:
            process.kill()


# ---- requests

_OLD = "an old question that is long enough to count for something, " * 4
_TURNS = [{"role": "user", "content": _OLD},
          {"role": "assistant", "content": "an old answer"},
          {"role": "user", "content": _OLD},
          {"role": "assistant", "content": "another old answer"},
          {"role": "user", "content": "and now?"}]
_SCHEMA = {"type": "object", "properties": {}, "required": []}
_TOOLS: "dict[str, list[Json]]" = {
    "chat": [{"type": "function", "function": {"name": "look", "parameters": _SCHEMA}}],
    "responses": [{"type": "function", "name": "look", "parameters": _SCHEMA,
                   "strict": False}],
    "messages": [{"name": "look", "input_schema": _SCHEMA}]}
_THINKING: "dict[str, Json]" = {
    "chat": {"reasoning_effort": "high"}, "responses": {"reasoning": {"effort": "high"}},
    "messages": {"thinking": {"type": "enabled", "budget_tokens": 2000}}}
_LIMIT = {"chat": "max_completion_tokens", "responses": "max_output_tokens",
          "messages": "max_tokens"}


def request_of(api: str, step: str) -> Json:
    """What a client asks in which the step has something to do."""
    out: Json = {"model": "model-of-main"}
    out["input" if api == "responses" else "messages"] = list(_TURNS)
    if api == "messages":
        out.update(system="Be brief.", max_tokens=4000)
    elif api == "chat":
        out["messages"] = [{"role": "system", "content": "Be brief."}, *_TURNS]
        out["max_completion_tokens"] = 4000
    else:
        out.update(instructions="Be brief.", max_output_tokens=4000)
    if step == "without_tools":
        out["tools"] = _TOOLS[api]
    if step == "no_thinking":
        out.update(_THINKING[api])
    return out


def edited(api: str, step: str, request: Json) -> Json:
    """What the provider must have been asked by the step."""
    out = dict(request)
    turns = "input" if api == "responses" else "messages"
    if step == "smaller_model":
        out["model"] = "model-of-small"
    elif step == "shorter":
        out[_LIMIT[api]] = 100
    elif step == "compact":
        out[turns] = [one for one in request[turns] if one["role"] == "system"
                      ] + request[turns][-1:]
    elif step == "no_thinking":
        out = {name: value for name, value in out.items()
               if name not in _THINKING[api]}
    elif step == "without_tools":
        del out["tools"]
    return out


def same(body: Json, request: Json) -> bool:
    """Whether a body is a request; how it is delivered is no matter."""
    return {name: value for name, value in body.items()
            if name not in ("stream", "stream_options")} == request


# What the primary does so that the step helps; the last stays.
FAULTS: "dict[str, tuple[str, ...]]" = {
    "smaller_model": ("unavailable",), "shorter": ("server_error", "ok"),
    "no_thinking": ("unsupported", "ok"), "compact": ("server_error", "ok"),
    "without_tools": ("unsupported", "ok"), "cached": ("unavailable",),
    "preset": ("unavailable",)}
_RUNGS: "dict[str, Json]" = {
    "smaller_model": {"route": "small"}, "shorter": {"max_tokens": 100},
    "compact": {"to_tokens": 80}, "cached": {"max_age_s": 60},
    "preset": {"text": SORRY}}
SENT = ("smaller_model", "shorter", "no_thinking", "compact", "without_tools")
STEPS = (*SENT, "cached", "preset")
# Extra tokens: the 500 may be billed, and the whole request a second time is
# too much, so that only the shorter one is left.
_EXTRA = {"shorter": 2000, "compact": 4150}


def card_of(url: str, api: str, *steps: str, **more: typing.Any) -> Json:
    """A card with one workflow w, whose ladder has the steps."""
    provider = "anthropic" if api == "messages" else "openai"
    routes = {name: {
        "provider": provider, "model": f"model-of-{name}", "account": name,
        "base_url": f"{url}/{name}/v1", "key_env": f"KEY_{name.upper()}",
        "price": {"input": 2.5, "output": 10},
        "provides": {"input": {"context_tokens": 100000, "system_prompt": True},
                     "output": {"max_tokens": 16000},
                     "operations": {"streaming": True}}}
        for name in ("main", "small")}
    routes["main"].pop("provides")
    return {
        "version": 1, "seed": 7, "routes": routes,
        "workflows": {"w": {
            "routes": ["main"],
            "budget": {"extra_tokens": _EXTRA.get(steps[0], 100000),
                       "extra_cost_usd": None,
                       # A whole answer of 4000 tokens is thought to take 335 s.
                       "elapsed_ms": 600000,
                       "per_class": {"server": 1 if steps[0] in _EXTRA else 0}},
            "ladder": [{"step": one, **_RUNGS.get(one, {})} for one in steps],
            **more}},
        "contracts": [{"workflow": "w", "route": "small", "fingerprint": "auto",
                       "approved_by": "t@example.com", "evidence": EVIDENCE}]
        if "smaller_model" in steps else []}


# ---- the SDKs


class Answer(typing.NamedTuple):
    text: str
    model: str
    headers: typing.Mapping[str, str]


def ask(client: typing.Any, api: str, stream: bool, request: Json,
        **options: typing.Any) -> Answer:
    """One request by the openai or anthropic package."""
    place = {"chat": lambda: client.chat.completions,
             "responses": lambda: client.responses,
             "messages": lambda: client.messages}[api]()
    raw = place.with_raw_response.create(**request, stream=stream, **options)
    answer = raw.parse()
    if not stream:
        text = (answer.choices[0].message.content if api == "chat" else
                answer.output_text if api == "responses" else
                answer.content[0].text)
        return Answer(text, answer.model, raw.headers)
    events = list(answer)
    if api == "chat":
        text = "".join(one.choices[0].delta.content or ""
                       for one in events if one.choices)
        return Answer(text, events[0].model, raw.headers)
    if api == "responses":
        return Answer(events[-1].response.output_text, events[-1].response.model,
                      raw.headers)
    text = "".join(one.delta.text for one in events
                   if one.type == "content_block_delta")
    return Answer(text, events[0].message.model, raw.headers)
