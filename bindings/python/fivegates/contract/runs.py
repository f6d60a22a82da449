"""A run: every case asked of both sides, judged, and written down.

Each call goes through the engine, which decides whether a failed one is sent
again; the bound is SENDS a case. What is finished is in the file of results
before the next case begins.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import dataclasses
import datetime
import json
import signal
import typing

import fivegates
from fivegates.attempt import Attempt
from fivegates.contract.fixtures import Case
from fivegates.contract.results import Key, Results
from fivegates.contract.scorers import WHOLE, Answer
from fivegates.contract.spend import Cap, cost_nusd, hidden_tokens, usd, worst_nusd
from fivegates.contract.targets import Reply, Side, Target
from fivegates.contract.threads import in_thread
from fivegates.contract.wire import output_limit
from fivegates.errors import FivegatesError, Refused
from fivegates.evidence import evidence_of

__all__ = ["SENDS", "Run", "Stop", "measuring_card", "output_bound"]

Json = typing.Dict[str, typing.Any]

# Sends of one case on one side at most, the first included.
SENDS = 4
# Calls in a row on one side that ended by an error: no chance, but an outage.
_STREAK = 5
# Refusals that say nothing of the case: it was not given all its sends. It is
# put back, so often at most.
_NOT_ITS_OWN = frozenset((
    "retry_bucket_empty", "retries_in_flight", "elapsed_exhausted", "wait_does_not_fit",
    "route_open", "route_stalled", "route_full", "route_paced", "route_told_to_wait",
    "ramping", "slow_route", "silent_route", "cut_route", "too_early", "local_fault"))
_PUT_BACK = 2
# Tokens counted for an answer without any stated limit, as the engine does.
_OUTPUT_TOKENS = 4096
_BYTES_PER_TOKEN = 4  # an estimate, for quotas; money is held by the byte
# The ends an answer may have. None: a function that returned a mere text.
_GOOD_ENDS = (None, "stop", "tool_calls")
# What of requires.output judges an answer; the rest is about the request.
_JUDGING = ("finish_reasons", "refusal_form", "schema")
_SHARED = ("backoff", "breaker", "accounts", "classify")
_ROUTE = ("provider", "model", "version", "account", "key_env", "api", "price", "quota")

Kind = typing.Literal["cap", "outage", "interrupt"]


@dataclasses.dataclass(frozen=True)
class Stop:
    """Why a run ended before its cases did."""

    kind: Kind
    why: str


class _Left(FivegatesError):
    """The run is being stopped: a call ends without another send."""


def measuring_card(card: Json, workflow: str, routes: "typing.Mapping[str, str]") -> str:
    """The card a measurement runs by, as JSON: each side alone, without a
    stand-in, judged as the workflow judges. routes: {side: route}."""
    flow = card["workflows"][workflow]
    output = (flow.get("requires") or {}).get("output") or {}
    out: Json = {"version": 1, "routes": {}, "workflows": {}}
    out.update({key: card[key] for key in _SHARED if card.get(key)})
    # Enough for cases that are sent again side by side; SENDS bounds each.
    out["retry_bucket"] = {"cap": 100, "start": 20}
    for side, name in routes.items():
        route = {key: card["routes"][name][key] for key in _ROUTE
                 if card["routes"][name].get(key) is not None}
        if isinstance(route.get("price"), dict):
            route["price"] = {key: str(value) for key, value in route["price"].items()}
        out["routes"][name] = route
        out["workflows"][side] = {
            # Nobody sees an answer before it is whole: it may begin again.
            "kind": "batch", "after_visible": "restart", "queue": False,
            "routes": [name], "hold_ms": 600_000,
            "budget": {"total_attempts": SENDS, "per_route": SENDS,
                       "per_class": {"answer": 0}, "extra_tokens": None,
                       "extra_cost_usd": None},
            "timeouts": flow.get("timeouts") or {},
            "requires": {"output": {key: output[key] for key in _JUDGING
                                    if key in output}}}
    return json.dumps(out, default=float)


def output_bound(side: Side, chat: Json) -> "int | None":
    """Output tokens of an answer at most; None: nothing states a limit."""
    return output_limit(chat) or side.output_max


@dataclasses.dataclass
class _Call:
    """One case on one side, being asked."""

    number: int
    key: Key
    body: Json
    worst: int  # nano-dollars of one send at most
    held: int  # of all sends so far, and of the first before it is made
    sends: int = 0
    cost: int = 0
    billed: bool = True  # every send's bill is known
    reply: "Reply | None" = None  # of the latest send


Show = typing.Callable[[str, str], object]  # side, result


class Run:
    """Asks what is not in the results yet. Sides by name: primary and route."""

    def __init__(self, cases: "typing.Sequence[Case]", sides: "typing.Mapping[str, Side]",
                 targets: "typing.Mapping[str, Target]", engine: "fivegates.Engine",
                 results: Results, cap: Cap, concurrency: int, *, streamed: bool = True,
                 keep_answers: bool = False, show: "Show | None" = None,
                 say: "typing.Callable[[str], object] | None" = None) -> None:
        self.sides = sides
        self.stopped: "Stop | None" = None
        self._targets = targets
        self._engine = engine
        self._results = results
        self._cap = cap
        self._concurrency = concurrency
        self._streamed = streamed
        self._keep = keep_answers
        self._show = show or (lambda side, result: None)
        self._say = say or (lambda words: None)
        self._streak = dict.fromkeys(sides, 0)
        self._wake = asyncio.Event()
        self._broke: "Exception | None" = None
        self._wanted = len(cases) * len(sides)
        # Side by side, so that a run that is stopped has measured both alike.
        # A case that ended by an error was not answered: it is asked again.
        self._left = collections.deque(
            (case, name) for case in cases for name in sides
            if results.done.get((case.id, name), {}).get("result") in (None, "error"))
        self._put_back: "collections.Counter[Key]" = collections.Counter()
        self._used: "collections.Counter[Key]" = collections.Counter()  # sends before that

    async def run(self) -> "Stop | None":
        """Runs until all is done, or something stops it. Raises ScorerBroke, and
        what a function of the user's raised."""
        workers = [asyncio.ensure_future(self._work()) for _ in range(self._concurrency)]
        with self._signals(workers):
            try:
                await asyncio.gather(*workers, return_exceptions=True)
            finally:
                for one in workers:
                    one.cancel()
                await asyncio.gather(*workers, return_exceptions=True)
                self._results.sync()
        if self._broke is not None:
            raise self._broke
        if self.stopped is None and len(self._results.done) < self._wanted:
            self.stop("interrupt", "a call was cancelled")  # by a function of the user's
        if self.stopped is None:
            self.stopped = self._unanswered()
        return self.stopped

    def _unanswered(self) -> "Stop | None":
        """A side of which no case was answered has not been measured."""
        for name, side in self.sides.items():
            lines = [one for key, one in self._results.done.items() if key[1] == name]
            if lines and all(one["result"] == "error" for one in lines):
                return Stop("outage", f"route {side.route['name']} answered no case")
        return None

    def stop(self, kind: Kind, why: str) -> None:
        """No further case begins; those being asked come to their end."""
        if self.stopped is None:
            self.stopped = Stop(kind, why)
        self._wake.set()

    def _capped(self, side: Side, worst: int) -> None:
        self.stop("cap", f"--max-usd would be passed: a send to {side.route['name']} may "
                  f"cost ${usd(worst)}, and ${usd(self._cap.spent_nusd)} is spent")

    @contextlib.contextmanager
    def _signals(self, workers: "typing.Sequence[asyncio.Future[None]]",
                 ) -> "typing.Iterator[None]":
        """The first signal lets answers that are paid for come; the second ends
        the run at once."""
        loop = asyncio.get_running_loop()
        caught: "list[signal.Signals]" = []

        def signalled() -> None:
            if self.stopped is not None and self.stopped.kind == "interrupt":
                for one in workers:
                    one.cancel()
            else:
                self._say("stopping: waiting for the answers that are paid for; once "
                          "more ends it at once")
            self.stop("interrupt", "interrupted")

        for number in (signal.SIGINT, signal.SIGTERM):
            with contextlib.suppress(ValueError, RuntimeError):  # not the main thread
                loop.add_signal_handler(number, signalled)
                caught.append(number)
        try:
            yield
        finally:
            for number in caught:
                loop.remove_signal_handler(number)

    async def _work(self) -> None:
        while self._left and self.stopped is None:
            case, name = self._left.popleft()
            try:
                if await self._one(case, name):
                    self._left.append((case, name))
            except Exception as exc:  # the user's function, or the disk
                self._broke = self._broke or exc
                self.stop("interrupt", type(exc).__name__)

    # ---- one case

    async def _one(self, case: Case, name: str) -> bool:
        """Asks one case; True: it must be asked again, later."""
        side = self.sides[name]
        body = self._targets[name].body(case.request)
        size = len(json.dumps(body, ensure_ascii=False).encode("utf-8", "replace"))
        limit = output_bound(side, case.request)
        worst = worst_nusd(side.price, size + hidden_tokens(case.request),
                           limit or _OUTPUT_TOKENS)
        if not await self._cap.room(worst):
            self._capped(side, worst)
            return False
        if self.stopped is not None:
            self._cap.settle(worst, 0)
            return False
        call = _Call(self._results.call(), (case.id, name), body, worst, worst)
        facts: "Json | None" = None
        try:
            facts = await self._asked(case, side, call, size, limit)
            if facts is not None:
                self._results.case(call.number, call.key, {
                    **facts, "sends": call.sends, "cost_nusd": call.cost,
                    "billed": call.billed})
        finally:
            if facts is None and call.sends:
                self._results.left(call.number, call.cost)
            # Only what is written down makes room for others: after a kill between
            # the answer and its line the hold is what counts.
            self._cap.settle(call.held, call.cost)
        if facts is not None:
            self._show(name, facts["result"])
        return facts is None

    async def _asked(self, case: Case, side: Side, call: _Call, size: int,
                     limit: "int | None") -> "Json | None":
        """Asks until there is an answer or the bound is used: the facts of the
        case's line; None: there is no result yet."""
        name = call.key[1]

        async def send(attempt: Attempt) -> typing.Any:
            return await self._send(attempt, side, call)

        try:
            await self._engine.arun(
                name, send, outcome=True, sleep=self._sleep, clear=lambda decision: None,
                stream=self._streamed, prompt_tokens=size // _BYTES_PER_TOKEN,
                max_output_tokens=limit,
                prior={"attempts": self._used[call.key], "tokens": 0, "cost_nusd": 0})
        except _Left:
            return None
        except Refused as refused:
            if call.reply is None:
                return self._failed(refused, side, call)
            self._streak[name] = 0
            return self._facts(call.reply, False, 0,
                               [f"output check: {refused.decision.kind}"])
        self._streak[name] = 0
        assert call.reply is not None
        return await self._judged(case, call.reply)

    async def _sleep(self, seconds: float) -> None:
        """Waits as the engine says; not into a stopped run."""
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._wake.wait(), seconds)
        if self.stopped is not None:
            raise _Left("stopped")

    async def _send(self, attempt: Attempt, side: Side, call: _Call) -> typing.Any:
        worst = call.worst
        if call.sends:
            if not self._cap.hold(worst):
                self._capped(side, worst)
                raise _Left("capped")
            call.held += worst
        call.reply = None
        call.sends += 1
        cost = worst
        try:
            self._results.sent(call.number, call.key, worst)
            reply = await self._targets[call.key[1]].send(attempt, call.body)
            if reply.usage is not None:
                # A card may be behind; a cap is not to be.
                cost = max(cost_nusd(side.price, *reply.usage), reply.cost_nusd)
            else:
                call.billed = False
        except BaseException as exc:
            if self._unbilled(exc, attempt):
                cost = 0
            else:
                call.billed = False
            raise
        finally:
            call.cost += cost
        call.reply = reply
        return reply.result

    def _unbilled(self, exc: BaseException, attempt: Attempt) -> bool:
        """Whether a failed send is known to have cost nothing."""
        found = evidence_of(exc)
        return found is not None and fivegates.classify(
            attempt.evidence(found), self._engine.policy).billed == "no"

    def _failed(self, refused: Refused, side: Side, call: _Call) -> "Json | None":
        """No answer came: the case's error, or None: the provider's outage, or a
        case that was not given its sends."""
        name, decision = call.key[1], refused.decision
        health = self._engine.route(side.route["name"])
        route = f"route {side.route['name']}"
        if health["latch"] != "none" or health["breaker"] != "closed":
            self.stop("outage", f"{route}: {decision.kind}, {decision.reason}")
            return None
        self._streak[name] += 1
        if self._streak[name] >= _STREAK:
            self.stop("outage", f"{route}: {_STREAK} calls in a row ended by an error, "
                      f"the last by {decision.kind}")
        if not call.sends or decision.reason in _NOT_ITS_OWN:
            self._put_back[call.key] += 1
            self._used[call.key] += call.sends
            if self._put_back[call.key] > _PUT_BACK:
                self.stop("outage", f"{route}: a case could not be sent again: "
                          f"{decision.reason}")
            return None
        return {"at": _now(), "result": "error", "score_ppm": 0,
                "reasons": [f"error: {decision.kind}"]}

    async def _judged(self, case: Case, reply: Reply) -> Json:
        answer = reply.answer
        if answer.finish not in _GOOD_ENDS:
            return self._facts(reply, False, 0, [f"ended by {answer.finish}"])
        found = [await in_thread(judge.of, answer, case.row)
                 for judge in case.judges]
        return self._facts(reply, all(one.passed for one in found),
                           min((one.ppm for one in found), default=WHOLE),
                           [one.reason for one in found if not one.passed])

    def _facts(self, reply: Reply, passed: bool, ppm: int, reasons: "list[str]") -> Json:
        out: Json = {"at": _now(), "result": "passed" if passed else "failed",
                     "score_ppm": ppm, "reasons": reasons,
                     "finish": reply.answer.finish,
                     "first_token_ms": reply.first_token_ms,
                     "latency_ms": reply.latency_ms,
                     "usage": reply.usage and dict(zip(
                         ("prompt", "cached", "output"), reply.usage))}
        if self._keep:
            out["answer"] = _kept(reply.answer)
        return out


def _kept(answer: Answer) -> Json:
    return {"text": answer.text, "tool_calls": list(answer.tool_calls)}


def _now() -> str:
    return datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
