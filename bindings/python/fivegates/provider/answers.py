"""The answers of a model that thinks nothing: words, or a call of a tool.

An Answer is the same for all APIs; chat.py, responses.py and messages.py give
it their form.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import typing

from fivegates.provider.asked import Asked

__all__ = ["Answer", "Finish", "example_of", "make_answer"]

Json = typing.Dict[str, typing.Any]
Finish = typing.Literal["stop", "tool", "length", "filter"]

_SENTENCE = ("This", "answer", "was", "made", "on", "loopback,", "one", "word",
             "for", "each", "token,", "and", "means", "nothing.")
_PIECE = 4  # letters of a tool's arguments in one token
_numbers = itertools.count(1)


@dataclasses.dataclass
class Answer:
    """What the model says."""

    id: str
    model: str
    prompt_tokens: int
    pieces: "list[str]"  # one a token: text, or a tool's arguments as JSON
    finish: Finish = "stop"
    tool: str = ""  # the tool that is called
    call_id: str = ""
    refusal: bool = False  # the pieces say no, in the field made for that

    def text(self, count: "int | None" = None) -> str:
        """All of the pieces, or the first few."""
        return "".join(self.pieces[:count])


def example_of(schema: typing.Any, depth: int = 0) -> typing.Any:
    """A small value that a JSON Schema accepts, as far as is simple."""
    if not isinstance(schema, dict) or depth > 5:
        return {}
    for key in ("const", "default"):
        if key in schema:
            return schema[key]
    if isinstance(schema.get("enum"), list) and schema["enum"]:
        return schema["enum"][0]
    for key in ("anyOf", "oneOf", "allOf"):
        if isinstance(schema.get(key), list) and schema[key]:
            return example_of(schema[key][0], depth + 1)
    kind = schema.get("type", "object")
    if isinstance(kind, list):
        kind = kind[0] if kind else "object"
    if kind == "object":
        given = schema.get("properties")
        properties = given if isinstance(given, dict) else {}
        return {name: example_of(one, depth + 1)
                for name, one in properties.items()}
    if kind in ("integer", "number"):
        low = schema.get("minimum", 1)
        return low if isinstance(low, (int, float)) else 1
    return {"string": "one", "boolean": True, "array": []}.get(str(kind))


def make_answer(asked: Asked, output_tokens: int) -> Answer:
    """A call of the first tool where one is offered and none has answered yet;
    else output_tokens words. max_tokens of the request cuts both."""
    number = next(_numbers)
    answer = Answer(f"{number:06d}", asked.model, asked.prompt_tokens, [])
    if asked.tools and not asked.after_tool:
        tool = asked.tools[0]
        text = json.dumps(example_of(tool.schema))
        answer.tool, answer.call_id = tool.name, f"call_{number:06d}"
        answer.finish = "tool"
        answer.pieces = [text[i:i + _PIECE] for i in range(0, len(text), _PIECE)]
    else:
        words = itertools.islice(itertools.cycle(_SENTENCE), output_tokens)
        answer.pieces = [word if i == 0 else " " + word
                         for i, word in enumerate(words)]
    if asked.max_tokens is not None and asked.max_tokens < len(answer.pieces):
        del answer.pieces[asked.max_tokens:]
        answer.finish = "length"
    return answer
