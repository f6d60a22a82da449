"""The refund tool as an operation of a task: done once, whoever asks again."""

from __future__ import annotations

import json

from fivegates.agent import Task
from referee.client import Tools

__all__ = ["refund"]


async def refund(task: Task, tools: Tools, arguments: str) -> str:
    """Makes the refund, or answers what came of it when it was made.

    Where its service does not acknowledge it is unresolved, and the task's
    next step is refused until somebody has looked it up.
    """
    with task.tool("refund", key=str(json.loads(arguments)["order"])) as op:
        if not op.held:
            op.result = await tools.refund(op.id, arguments)
    return str(op.result)
