"""An agent's task: its model requests are steps of one call, its tools act once.

    task = Task(engine, "refund-agent")
    answer = task.ask(send)                              # one step
    for tool in answer.choices[0].message.tool_calls or ():
        with task.tool("charge_card", key="order-9") as op:
            if not op.held:
                op.result = charge("order-9", idempotency_key=op.id)
        messages.append(told(tool, op.result))
    answer = task.ask(send)                              # the next step

A step that fails is sent again alone: what tools did before it is held, and
asking for the same operation answers the held result. An operation whose end
nobody knows (its block raised) bars the next step until it is looked up:
resolve("charge_card", key="order-9", effect="committed").
"""

from __future__ import annotations

import json
import typing

from fivegates.errors import ArgumentError, StateError

if typing.TYPE_CHECKING:
    import types

    from fivegates._core import Call, Effect, Engine
    from fivegates.attempt import Attempt
    from fivegates.runner import Outcome

__all__ = ["Operation", "Task"]

T = typing.TypeVar("T")
_STARTED, _DONE = "started", "done"


class Operation:
    """One action of a tool on the world, done at most once in a task.

    id is the same whenever the task asks for this tool and key: give it to
    the tool's own service as its idempotency key. held: done before, result
    is what came of it. Leave the block by an exception and the effect is
    unknown; say failed() first where it is certain that nothing happened.
    """

    def __init__(self, task: "Task", name: str, key: str,
                 idempotent: bool) -> None:
        self.task = task
        self.name = name
        self.key = key
        self.idempotent = idempotent
        self.id = f"{name}:{key}"
        state = task.operations.get(self.id)
        self.held = state is not None and state["state"] == _DONE
        self.result: typing.Any = state["result"] if state and self.held else None
        self._failed = False

    def failed(self) -> None:
        """The tool certainly did nothing: it may be asked for again."""
        self._failed = True

    def __enter__(self) -> "Operation":
        if not self.held:
            self.task._starts(self)
        return self

    def __exit__(self, kind: "type[BaseException] | None",
                 exc: "BaseException | None",
                 trace: "types.TracebackType | None") -> None:
        if self.held:
            return
        if self._failed:
            self.task._ends(self, "failed")
        elif exc is None:
            self.task._ends(self, "committed")


class Task:
    """One task of an agent.

    options are those of Engine.run() for every step: facts, on_decision,
    ledger, preset, .... store(text) is given the task's state whenever it
    changes, before a tool acts and after, so that another process can go on
    with Task.resume(engine, text); results must then be JSON.
    """

    def __init__(self, engine: "Engine", workflow: str, *,
                 store: "typing.Callable[[str], object] | None" = None,
                 **options: typing.Any) -> None:
        if workflow not in engine.policy.workflows():
            raise ArgumentError(f"no workflow {workflow!r} in the card; it has "
                                f"{', '.join(engine.policy.workflows())}")
        self.engine = engine
        self.workflow = workflow
        self.options = {"resume": True, **options}  # a step is sent alone
        self.call: "Call | None" = None
        self.outcome: "Outcome | None" = None
        self.operations: "dict[str, dict[str, typing.Any]]" = {}
        self._store = store

    # ---- steps

    def ask(self, send: "typing.Callable[[Attempt], T] | typing.Mapping[str, typing.Callable[[Attempt], T]]",
            **options: typing.Any) -> T:
        """The next model request; as Engine.run(). outcome is kept here."""
        self.outcome = self.engine.run(
            self.workflow, self._kept(send), outcome=True, call=self.ready(),
            **{**self.options, **options})
        self.took(self.outcome.call)
        return typing.cast(T, self.outcome.value)

    async def aask(self, send: "typing.Callable[[Attempt], typing.Awaitable[T]] | typing.Mapping[str, typing.Callable[[Attempt], typing.Awaitable[T]]]",
                   **options: typing.Any) -> T:
        """The same for async code; as Engine.arun()."""
        self.outcome = await self.engine.arun(
            self.workflow, self._kept(send), outcome=True, call=self.ready(),
            **{**self.options, **options})
        self.took(self.outcome.call)
        return typing.cast(T, self.outcome.value)

    def _kept(self, send: typing.Any) -> typing.Any:
        """The sender, which tells the task its call as soon as it is known:
        a tool may act while a step runs, or the step be refused."""
        def noted(one: typing.Any) -> typing.Any:
            def sender(attempt: "Attempt") -> typing.Any:
                self.took(attempt.call)
                return one(attempt)
            return sender
        if isinstance(send, typing.Mapping):
            return {route: noted(one) for route, one in send.items()}
        return noted(send)

    def ready(self) -> "Call | None":
        """The call whose next step may begin; None: a new call begins.

        A refused call has ended; asking again is a new call, as the tools'
        work is held here. StateError while an operation is unresolved.
        """
        open_ends = [name for name, one in self.operations.items()
                     if one["state"] == _STARTED and not one["idempotent"]]
        if open_ends:
            name, _, key = open_ends[0].partition(":")
            raise StateError(
                f"nobody knows whether {open_ends[0]} happened; look it up, "
                f"then resolve({name!r}, key={key!r}, effect=\"committed\" or "
                f"\"none\")", "state")
        if self.call is not None and self.call.decision.action == "accept":
            return self.call
        return None

    def took(self, call: "Call") -> None:
        """A step runs as this call."""
        self.call = call

    # ---- tools

    def tool(self, name: str, *, key: str, idempotent: bool = False) -> Operation:
        """An operation: a with block around what acts on the world.

        key tells one use of the tool from another: the order, the mail's
        recipient; of the same name and key there is one in a task. idempotent:
        doing it twice is harmless, so that it bars nothing.
        """
        if not key or ":" in name:
            raise ArgumentError("a tool's operation needs a key that tells it "
                                "from the others, and a name without a colon")
        return Operation(self, name, key, idempotent)

    def _starts(self, op: Operation) -> None:
        found = self.operations.get(op.id)
        if found is not None and not found["idempotent"]:
            self.ready()  # says which operation is unresolved
        if self.call is None:
            raise StateError("a tool acts for an answer: ask() first", "state")
        self.call.tool(op.id, "requested", op.idempotent)
        self.operations[op.id] = {"state": _STARTED, "result": None,
                                  "idempotent": op.idempotent}
        self._keep()
        self.call.tool(op.id, "started", op.idempotent)

    def _ends(self, op: Operation, how: "typing.Literal['committed', 'failed']") -> None:
        assert self.call is not None
        self.call.tool(op.id, how, op.idempotent)
        if how == "failed":
            del self.operations[op.id]
        else:
            self.operations[op.id].update(state=_DONE, result=op.result)
            self.call.tool(op.id, "acknowledged", op.idempotent)
        self._keep()

    def resolve(self, name: str, *, key: str, effect: "Effect",
                result: typing.Any = None) -> None:
        """What a look-up said of an operation: "committed", with its result,
        or "none": it did not happen and may be asked for again."""
        op = f"{name}:{key}"
        if self.operations.get(op, {}).get("state") != _STARTED:
            raise ArgumentError(f"no operation {op} of this task is unresolved")
        if effect not in ("committed", "none"):
            raise ArgumentError(f"effect {effect!r}: a look-up says committed "
                                f"or none")
        if self.call is not None:  # else it was started in another process
            self.call.resolved(op, effect)
        if effect == "none":
            del self.operations[op]
        else:
            self.operations[op].update(state=_DONE, result=result)
        self._keep()

    # ---- another process

    def save(self) -> str:
        """What the task's tools have done, as a JSON text."""
        return json.dumps({"workflow": self.workflow,
                           "operations": self.operations})

    def _keep(self) -> None:
        if self._store is not None:
            self._store(self.save())

    @classmethod
    def resume(cls, engine: "Engine", saved: str, *,
               store: "typing.Callable[[str], object] | None" = None,
               **options: typing.Any) -> "Task":
        """Goes on with a task of another process, in a call of its own.

        What was done is held; what was only started is unresolved.
        """
        try:
            state = json.loads(saved)
            workflow, operations = state["workflow"], dict(state["operations"])
            for one in operations.values():
                if one["state"] not in (_STARTED, _DONE) or not isinstance(
                        one["idempotent"], bool) or "result" not in one:
                    raise ValueError(one)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ArgumentError(f"not a saved task: {error!r}; give resume() "
                                f"what store() was given") from error
        task = cls(engine, workflow, store=store, **options)
        task.operations = operations
        return task
