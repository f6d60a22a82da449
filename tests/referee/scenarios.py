"""The scenarios: a fault, a user's request, and what must hold after it.

The first sixteen are faults everybody meets; the others are ours. Times are
short: a client's time-out is 1 s, a user waits 6 s.
"""

from __future__ import annotations

import dataclasses

from referee import faults as f
from referee.ask import Ask, Route
from referee.checks import (
    Check,
    accounted,
    advisory,
    all_answered,
    answered,
    at_most,
    billed_at_most,
    cost_within,
    effects,
    error_names,
    hung_up_within,
    never_unchanged,
    no_request_after,
    not_before_retry_after,
    not_hammered,
    on_average,
    required,
    sdk_error,
    served_told,
    standard,
)
from referee.provider import PROMPT_TOKENS, WORDS, Script

__all__ = ["SCENARIOS", "Scenario"]

WHOLE = Ask(stream=False)
STREAM = Ask()
AGENT = Ask(stream=False, agent=True, outer=2)
ANSWER = PROMPT_TOKENS + WORDS  # tokens one answer bills
MAIN, BACKUP = Route("m1", "account-a"), Route("m2", "account-b")
ROUTES = {"main": MAIN, "backup": BACKUP}
# One user's request, faults or not, is worth so many requests.
A_FEW = 5


@dataclasses.dataclass(frozen=True)
class Scenario:
    name: str
    why: str
    script: Script
    ask: Ask
    checks: "list[Check]"
    routes: "dict[str, Route]" = dataclasses.field(
        default_factory=lambda: dict(ROUTES))
    tool_script: "tuple[str, ...]" = ("done",)
    within_s: "float | None" = None  # default: the ask's deadline

    def all_checks(self) -> "list[Check]":
        return standard(self.within_s or self.ask.deadline_s) + self.checks


COMMON = [
    Scenario(
        "429 with Retry-After",
        "The server says when; coming earlier prolongs the limit.",
        {"main": [f.rate_limited({"Retry-After": "1"}), f.ok()],
         "backup": [f.ok()]}, WHOLE,
        required(not_before_retry_after(1.0), at_most(3))
        + advisory(answered(), billed_at_most(ANSWER))),
    Scenario(
        "429 without Retry-After",
        "Nobody says when, so the client must slow down by itself.",
        {"main": [f.rate_limited(), f.rate_limited(), f.ok()],
         "backup": [f.ok()]}, WHOLE,
        required(not_hammered(3, 1.0), at_most(A_FEW))
        + advisory(answered(), billed_at_most(ANSWER))),
    Scenario(
        "500 once", "A passing error costs one more request, not two.",
        {"main": [f.error(500, "server_error", None, "Internal error."),
                  f.ok()], "backup": [f.ok()]}, WHOLE,
        required(at_most(2)) + advisory(answered(), billed_at_most(ANSWER))),
    Scenario(
        "503 always", "The primary is down; hammering it helps nobody.",
        {"main": [f.unavailable()], "backup": [f.ok()]}, STREAM,
        required(at_most(A_FEW)) + advisory(answered(by="backup"))),
    Scenario(
        "reset before headers",
        "The connection dies after the request was read: it may have run.",
        {"main": [f.reset(), f.ok()], "backup": [f.ok()]}, WHOLE,
        required(at_most(2)) + advisory(
            answered(), billed_at_most(PROMPT_TOKENS + ANSWER))),
    Scenario(
        "no response at all",
        "The server took the request and stays silent; it bills each one.",
        {"main": [f.hang()], "backup": [f.ok()]}, WHOLE,
        required(at_most(A_FEW)) + advisory(
            answered(by="backup"), billed_at_most(2 * ANSWER))),
    Scenario(
        "slow first token",
        "The first token takes longer than the client waits, each time.",
        {"main": [f.ok(first_s=2.0, name="slow")], "backup": [f.ok()]}, STREAM,
        required(at_most(A_FEW)) + advisory(
            answered(), billed_at_most(2 * ANSWER))),
    Scenario(
        "stream cut",
        "Five words are on the screen when the connection dies.",
        {"main": [f.cut(5)], "backup": [f.ok()]}, STREAM,
        required(at_most(2)) + advisory(error_names(
            "partial", "cut", "incomplete", "read", "reset", "connection"))),
    Scenario(
        "stream stall",
        "Five words are on the screen, then nothing comes any more.",
        {"main": [f.cut(5, stall_s=30)], "backup": [f.ok()]}, STREAM,
        required(at_most(2)) + advisory(error_names(
            "idle", "timeout", "timed out", "partial"))),
    Scenario(
        "malformed chunk",
        "An event before the first word is no JSON: nothing is lost yet.",
        {"main": [f.malformed()], "backup": [f.ok()]}, STREAM,
        required(at_most(A_FEW)) + advisory(answered())),
    Scenario(
        "no terminal sentinel",
        "The stream ends politely after seven of twelve words, without a "
        "finish reason.",
        {"main": [f.no_sentinel(7)], "backup": [f.ok()]}, STREAM,
        required(at_most(2)) + advisory(error_names(
            "partial", "cut", "incomplete", "end"))),
    Scenario(
        "context length",
        "The prompt is too long; the same request can only fail the same way.",
        {"main": [f.context_length(128_000, 131_000)],
         "backup": [f.context_length(128_000, 131_000)]}, WHOLE,
        required(at_most(1, "main"), at_most(1, "backup"))
        + advisory(error_names("context"), sdk_error())),
    Scenario(
        "content filter",
        "A filter refused the prompt; asking again is no appeal.",
        {"main": [f.content_filter()], "backup": [f.ok()]}, WHOLE,
        required(at_most(1, "main")) + advisory(
            at_most(0, "backup"), error_names("content"), sdk_error())),
    Scenario(
        "stand-in rejects prefill",
        "The primary is down, and the stand-in cannot take a conversation "
        "that ends with the assistant's own words.",
        {"main": [f.unavailable()], "backup": [f.prefill_rejected()]},
        dataclasses.replace(STREAM, prefill=True),
        required(at_most(1, "backup"), at_most(A_FEW)) + advisory(
            at_most(0, "backup"), error_names("prefill", "features"),
            sdk_error()),
        routes={"main": MAIN, "backup": dataclasses.replace(
            BACKUP, prefill=False)}),
    Scenario(
        "flapping primary",
        "Up for 10 s, down for 10 s, for 60 s; time is compressed ten times. "
        "A user comes every tenth of a second.",
        {"main": [f.flapping(1.0, 1.0)], "backup": [f.ok()]},
        dataclasses.replace(STREAM, count=60, every_s=0.1, scale=10),
        required(on_average(2.0)) + advisory(
            all_answered(1.0), on_average(1.5))),
    Scenario(
        "accounting of the fallback",
        "The primary's answer was made, billed and lost on the way; the "
        "stand-in answers. Who did, and what did it cost?",
        {"main": [f.cut_body()], "backup": [f.ok()]}, WHOLE,
        required(at_most(A_FEW)) + advisory(
            answered(by="backup"), served_told(), accounted())),
]

OURS = [
    Scenario(
        "tool effect then 500",
        "The refund is made; then the model fails. A job runner tries what "
        "failed once more.",
        {"main": f.after_tool(f.tool_call(), [
            f.error(500, "server_error", None, "Internal error.")]),
         "backup": f.after_tool(f.tool_call(), [f.ok()])}, AGENT,
        required(effects(1)) + advisory(answered(by="backup"))),
    Scenario(
        "tool acknowledgement lost",
        "The refund is made, and the tool's service answers 500. A job runner "
        "tries what failed once more.",
        {"main": f.after_tool(f.tool_call(), [f.ok()]),
         "backup": f.after_tool(f.tool_call(), [f.ok()])}, AGENT,
        required(effects(1)) + advisory(error_names(
            "reconcile", "refund")), tool_script=("lost",)),
    Scenario(
        "layered retries",
        "All is down. A job runner tries three times around an SDK that makes "
        "three requests each time.",
        {"main": [f.unavailable()], "backup": [f.unavailable()]},
        dataclasses.replace(WHOLE, outer=3, sdk_retries=2, patience_s=3.0,
                            deadline_s=8.0),
        required(at_most(6)) + advisory(
            error_names("unavailable", "503"), sdk_error())),
    Scenario(
        "quota in a 200 stream",
        "The status is 200, and the only event says that the account is empty.",
        {"main": [f.quota_in_stream()], "backup": [f.ok()]}, STREAM,
        required(at_most(1, "main")) + advisory(answered(by="backup"))),
    Scenario(
        "error in the second event",
        "The stream begins as it should; its second event is an error.",
        {"main": [f.error_event()], "backup": [f.ok()]}, STREAM,
        required(at_most(A_FEW)) + advisory(answered(by="backup"))),
    Scenario(
        "pings without content",
        "Bytes keep coming, so no read times out; a word never comes.",
        {"main": [f.pings(0.2, 12.0)], "backup": [f.ok()]}, STREAM,
        required(at_most(A_FEW)) + advisory(answered(by="backup"))),
    Scenario(
        "content without a pause",
        "A long answer flows without a pause for longer than any client "
        "waits for a first word; it must not be cut off.",
        {"main": [f.ok(gap_s=0.1, words=40)], "backup": [f.ok()]},
        dataclasses.replace(STREAM, deadline_s=2.0),
        required(answered(by="main"), at_most(1)), within_s=8.0),
    Scenario(
        "client gone in the stream",
        "The user closes the page after three words.",
        {"main": [f.ok(gap_s=0.2)], "backup": [f.ok()]},
        dataclasses.replace(STREAM, leaves_after_words=3),
        required(no_request_after(), hung_up_within(1.0), at_most(1))),
    Scenario(
        "client gone before headers",
        "The user closes the page before the server answers, with a 503.",
        {"main": [f.unavailable(after_s=0.95)], "backup": [f.ok()]},
        dataclasses.replace(STREAM, leaves_after_s=0.3),
        required(no_request_after(), hung_up_within(0.6), at_most(1))),
    Scenario(
        "empty choices", "200, and the list of choices is empty.",
        {"main": [f.empty_choices()], "backup": [f.ok()]}, WHOLE,
        required(at_most(A_FEW)) + advisory(answered(by="backup"))),
    Scenario(
        "truncated tool call",
        "max_tokens cuts the arguments of a refund; the same request would be "
        "cut again.",
        {"main": f.after_tool(f.tool_call(needs=60), [f.ok()]),
         "backup": f.after_tool(f.tool_call(needs=60), [f.ok()])},
        dataclasses.replace(AGENT, outer=1),
        required(effects(1), never_unchanged()) + advisory(answered())),
    Scenario(
        "refusal", "200: the model declines, in the field made for that.",
        {"main": [f.refusal()], "backup": [f.ok()]}, WHOLE,
        required(at_most(1, "main")) + advisory(
            at_most(0, "backup"), error_names("refus", "declin"))),
    Scenario(
        "request that can never fit",
        "A 429 for a request above the limit itself: waiting never helps.",
        {"main": [f.too_large(30_000, 50_000)],
         "backup": [f.too_large(10_000, 50_000)]},
        dataclasses.replace(WHOLE, prompt_tokens=50_000),
        required(at_most(1, "main"), at_most(1, "backup")) + advisory(
            at_most(1), error_names("too large", "never_fits"), sdk_error()),
        routes={"main": MAIN, "backup": dataclasses.replace(
            BACKUP, context_tokens=16_000)}),
    Scenario(
        "money cap",
        "Answers are made, billed and lost; the request may cost two answers "
        "at most.",
        {"main": [f.cut_body()], "backup": [f.cut_body()]},
        dataclasses.replace(WHOLE, cap_usd=0.0006),
        required(cost_within()) + advisory(error_names("cost"))),
    Scenario(
        "two routes of one broken account",
        "The account is empty, whatever the route; two users ask.",
        {"main": [f.quota_exhausted()], "backup": [f.quota_exhausted()]},
        dataclasses.replace(WHOLE, count=2),
        required(at_most(2)) + advisory(
            at_most(1), error_names("quota")),
        routes={"main": MAIN, "backup": dataclasses.replace(
            BACKUP, account=MAIN.account)}),
]

SCENARIOS = COMMON + OURS
