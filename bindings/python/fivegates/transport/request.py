"""What a request to a model says of itself, and how it is sent elsewhere.

A request is read by its path and its JSON body: chat completions, responses,
messages (anthropic) and generateContent (gemini). Anything else, a list of
models or an upload, is not a call to a model and is not guarded.
"""

from __future__ import annotations

import json
import re
import typing

from fivegates._core import chat_request
from fivegates.compact import compact
from fivegates.edits import Compact, Drops, edit

__all__ = ["ModelRequest", "edited", "url_for"]

Json = typing.Dict[str, typing.Any]

# Path of each API below a base URL.
_PATHS = (
    ("chat", re.compile(r"/chat/completions$")),
    ("responses", re.compile(r"/responses$")),
    ("messages", re.compile(r"(?:/v1)?/messages$")),
    ("generateContent", re.compile(
        r"(?:/v1(?:beta|alpha)?)?/models/[^/:]+:(?:stream)?[gG]enerateContent$")),
)
_TOOL_OUTPUTS = ("function_call_output", "custom_tool_call_output")
_SCHEMA_KEYS = {"response_format", "output_format", "text", "generationConfig"}
_LIMITS = ("max_completion_tokens", "max_output_tokens", "max_tokens")
# An estimate, as the real count comes with the answer: UTF-8 bytes of JSON
# for a token of text, and tokens of an image or another long attachment.
_BYTES_PER_TOKEN = 4
_LONG_STRING = 2000
_ATTACHMENT_TOKENS = 1000


class ModelRequest:
    """One request to a model: its API, body and the facts for begin()."""

    def __init__(self, wire: str, path: str, content: bytes,
                 body: "Json | None" = None,
                 plain: "tuple[str, bool] | None" = None,
                 facts: "Json | None" = None) -> None:
        """plain: model and stream of a body that is not parsed yet; facts:
        its facts, where they are known."""
        self.wire = wire
        self.path = path  # below the base URL: "/chat/completions"
        self.content = content
        self._body = body
        self._facts = facts
        self.model: "str | None"  # asked for; None where it names none
        self.streamed: bool
        if plain is not None:
            self.model, self.streamed = plain
            return
        self.streamed = bool(self.body.get("stream"))
        if wire == "generateContent":
            self.model = path.rpartition("/")[2].partition(":")[0]
            self.streamed = self.streamed or ":stream" in path
        else:
            model = self.body.get("model")
            self.model = model if isinstance(model, str) else None

    @property
    def body(self) -> Json:
        """The parsed body; of a plain one only where somebody asks."""
        if self._body is None:
            self._body = json.loads(self.content)
        return self._body

    @staticmethod
    def api(method: str, path: str) -> "tuple[str, str] | None":
        """The API and the path below the base URL; None for other requests."""
        # A thread of the Assistants API has messages too, which ask no model.
        if method == "POST" and "/threads/" not in path:
            for wire, shape in _PATHS:
                found = shape.search(path)
                if found is not None:
                    return wire, found.group()
        return None

    @staticmethod
    def of(api: "tuple[str, str]", content: bytes) -> "ModelRequest | None":
        """The request as one to a model; None when its body is none."""
        plain = chat_request(content) if api[0] == "chat" else None
        if plain is not None:
            model, facts = plain
            return ModelRequest(*api, content, None, (model, facts["stream"]),
                                facts)
        try:
            body = json.loads(content)
        except ValueError:
            return None  # the server will say what is wrong with it
        return (ModelRequest(*api, content, body) if isinstance(body, dict)
                else None)

    def answered_by(self, answer: object) -> bool:
        """Whether the value of a whole body answers this request; what is
        in it the engine judges."""
        if self.wire == "generateContent":
            return isinstance(answer, (dict, list))
        return isinstance(answer, dict) and not self.streamed and (
            self.wire != "chat" or bool(answer.get("choices")))

    @property
    def wants_schema(self) -> bool:
        """Whether the answer must be JSON of a schema."""
        return bool(_SCHEMA_KEYS & self.body.keys()) and _wants_schema(self.body)

    @property
    def takes_words(self) -> bool:
        """Whether a sentence is an answer: not to who waits for JSON, or for
        the call of a tool."""
        return not (self.wants_schema or _wants_json(self.body)
                    or _wants_call(self.body))

    @property
    def wants_text(self) -> bool:
        """Whether a stream without text or tool call is an empty answer; it
        may be an image, or sound."""
        return self.wire in ("chat", "messages") and (
            "audio" not in (self.body.get("modalities") or ()))

    def facts(self) -> "dict[str, typing.Any]":
        """Arguments of Engine.begin(), as far as the body tells them."""
        if self._facts is not None:
            return dict(self._facts)
        out: "dict[str, typing.Any]" = {
            "prompt_tokens": self._prompt_tokens(),
            "request_bytes": len(self.content),
            "stream": self.streamed,
        }
        limit = self._output_limit()
        if limit:
            out["max_output_tokens"] = limit
        features = self._of_body() + self._of_messages()
        if features:
            out["features"] = features
        declared = self._declared()
        if declared:
            out["tools"] = _names(declared)
        state = self._server_state(declared)
        if state is not None:
            out["server_state"] = state
        return out

    def _output_limit(self) -> int:
        config = self.body.get("generationConfig")
        if isinstance(config, dict):
            places = [config.get("maxOutputTokens")]
        else:
            places = [self.body[name] for name in _LIMITS if name in self.body]
        return max((n for n in places if isinstance(n, int) and n > 0),
                   default=0) if places else 0

    def _prompt_tokens(self) -> int:
        size = len(self.content)
        extra = 0
        if size > _LONG_STRING and b"base64" in self.content.lower():
            for text in _strings(self.body):
                if len(text) > _LONG_STRING and " " not in text[:200]:
                    size -= len(text)
                    extra += _ATTACHMENT_TOKENS
        return max(1, size // _BYTES_PER_TOKEN + extra)

    def _of_body(self) -> "list[str]":
        """The features the request asks for beside its messages."""
        body, out = self.body, []
        if body.get("tools"):
            out.append("tools")
        if body.get("parallel_tool_calls") is True:
            out.append("parallel_tools")
        if self.wants_schema:
            out.append("json_schema")
        if body.get("reasoning_effort") or body.get("reasoning") or (
                body.get("thinking")):
            out.append("reasoning")
        return out

    def _of_messages(self) -> "list[str]":
        """The features its messages need."""
        body = self.body
        turns = body.get("messages") or body.get("input") or body.get("contents")
        found: "set[str]" = set()
        if body.get("system") or body.get("instructions") or (
                body.get("systemInstruction")):
            found.add("system_prompt")
        role = None
        for turn in turns if isinstance(turns, list) else ():
            if not isinstance(turn, dict):
                continue
            role = turn.get("role")
            if role in ("system", "developer"):
                found.add("system_prompt")
            elif role in ("tool", "function") or (
                    turn.get("type") in _TOOL_OUTPUTS):
                found.add("tool_round_trip")
            parts = turn.get("content") or turn.get("parts")
            if isinstance(parts, list):
                found.update(filter(None, map(_of_part, parts)))
        if role in ("assistant", "model"):
            found.add("prefill")
        return sorted(found)

    def _declared(self) -> "list[Json]":
        tools = self.body.get("tools")
        return ([one for one in tools if isinstance(one, dict)]
                if isinstance(tools, list) else [])

    def _server_state(self, declared: "list[Json]") -> "str | None":
        """What the server keeps or does by itself for this request."""
        body = self.body
        if any(_runs_on_server(one, self.wire) for one in declared) or (
                body.get("mcp_servers") or body.get("container")):
            return "tools"
        if self.wire == "responses":
            if body.get("background"):
                return "background"
            if body.get("previous_response_id") or body.get("conversation"):
                return "conversation"
            return None if body.get("store") is False else "stored"
        return "stored" if body.get("store") else None


def _strings(value: object) -> "typing.Iterator[str]":
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for one in value.values():
            yield from _strings(one)
    elif isinstance(value, list):
        for one in value:
            yield from _strings(one)


def _names(declared: "list[Json]") -> "list[str]":
    """Names of the tools a request declares."""
    names: "list[str]" = []
    for one in declared:
        inner = one.get("function")
        listed = one.get("functionDeclarations")
        if isinstance(listed, list):
            names += [str(each.get("name")) for each in listed
                      if isinstance(each, dict)]
        elif isinstance(inner, dict):
            names.append(str(inner.get("name")))
        elif one.get("name"):
            names.append(str(one["name"]))
    return names


def _of_part(part: object) -> "str | None":
    """The feature a part of a message needs."""
    if not isinstance(part, dict):
        return None
    kind = part.get("type")
    if kind == "tool_result" or "functionResponse" in part:
        return "tool_round_trip"
    inline = part.get("inlineData")
    if kind in ("image", "image_url", "input_image") or (
            isinstance(inline, dict)
            and str(inline.get("mimeType")).startswith("image/")):
        return "image"
    return None


def _wants_schema(body: Json) -> bool:
    for place in (body.get("response_format"), body.get("output_format"),
                  (body.get("text") or {}).get("format")
                  if isinstance(body.get("text"), dict) else None):
        if isinstance(place, dict) and place.get("type") == "json_schema":
            return True
    config = body.get("generationConfig")
    return isinstance(config, dict) and bool(
        config.get("responseSchema") or config.get("responseJsonSchema"))


def _wants_json(body: Json) -> bool:
    """JSON of any kind."""
    text, config = body.get("text"), body.get("generationConfig")
    for place in (body.get("response_format"),
                  text.get("format") if isinstance(text, dict) else None):
        if isinstance(place, dict) and place.get("type") == "json_object":
            return True
    return isinstance(config, dict) and (
        config.get("responseMimeType") == "application/json")


def _wants_call(body: Json) -> bool:
    """A tool choice that leaves the model no other answer than a call."""
    choice = body.get("tool_choice") or body.get("function_call")
    config = body.get("toolConfig")
    calling = (config.get("functionCallingConfig")
               if isinstance(config, dict) else None)
    if isinstance(calling, dict) and calling.get("mode") == "ANY":
        return True
    if not isinstance(choice, dict):
        return choice in ("required", "any")
    inner = choice.get("allowed_tools")
    mode = (inner if isinstance(inner, dict) else choice).get("mode")
    kind = choice.get("type")
    return (mode == "required" if kind == "allowed_tools"
            else kind not in ("auto", "none"))


def _runs_on_server(tool: Json, wire: str) -> bool:
    """A tool the provider runs itself, so its effects are out of sight."""
    kind = tool.get("type")
    if wire == "generateContent":
        return "functionDeclarations" not in tool
    return kind not in (None, "function", "custom") and not (
        wire == "messages" and str(kind).startswith(
            ("bash_", "text_editor_", "computer_", "memory_")))


def edited(request: ModelRequest, model: "str | None",
           changes: "dict[str, typing.Any]", drops: Drops,
           provider: "str | None" = None,
           shorten: Compact = compact) -> "bytes | None":
    """The body as another route, or a step of the ladder, must get it.

    The very bytes of the request where nothing changes; None: a change cannot
    be made so that the API takes the request. See fivegates.edits.edit().
    """
    if not changes and (model is None or model == request.model):
        return request.content
    body = edit(request.body, changes, drops, request.wire, provider, shorten)
    if body is None:
        return None
    if model is not None and request.wire != "generateContent":
        body["model"] = model
    if body == request.body:
        return request.content
    return json.dumps(body, ensure_ascii=False,
                      separators=(",", ":")).encode()


def url_for(base_url: str, request: ModelRequest, model: "str | None") -> str:
    """Where a route answers this API: its base URL, the path, the model.

    A base URL may end with the API's own version (".../v1") or not, and may
    carry a query, as Azure's do.
    """
    base, mark, query = base_url.partition("?")
    base = base.rstrip("/")
    path = request.path
    version = re.match(r"/v1(?:beta|alpha)?(?=/)", path)
    if version and base.endswith(version.group()):
        path = path[version.end():]
    if model is not None and request.wire == "generateContent":
        path = re.sub(r"(?<=/models/)[^/:]+", lambda _: model, path)
    return base + path + mark + query
