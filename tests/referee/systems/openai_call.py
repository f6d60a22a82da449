"""A chat completion by the openai package, read as its own README reads it."""

from __future__ import annotations

import typing

from referee.client import Reply, Screen

__all__ = ["ask_openai", "reply_of"]


def reply_of(answer: typing.Any) -> Reply:
    """A whole answer."""
    message = answer.choices[0].message
    usage = answer.usage
    return Reply(message.content or "", [
        {"id": one.id, "name": one.function.name,
         "arguments": one.function.arguments}
        for one in message.tool_calls or ()], answer.model,
        usage.total_tokens if usage else None)


async def ask_openai(client: typing.Any, request: "dict[str, typing.Any]",
                     screen: Screen) -> Reply:
    """Makes the request; streamed text goes to the screen."""
    answer = await client.chat.completions.create(**request)
    if not request.get("stream"):
        return reply_of(answer)
    reply = Reply()
    async for chunk in answer:
        reply.model = chunk.model
        if chunk.usage:
            reply.spent = chunk.usage.total_tokens
        if chunk.choices and chunk.choices[0].delta.content:
            reply.text += chunk.choices[0].delta.content
            screen.show(chunk.choices[0].delta.content)
    return reply
