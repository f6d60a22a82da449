"""The engine, compiled. Words (actions, owners, reasons) are plain str."""

from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from decimal import Decimal
from os import PathLike
from typing import (
    Any,
    Final,
    Literal,
    Protocol,
    TypeAlias,
    TypedDict,
    TypeVar,
    final,
    overload,
)

from typing_extensions import Unpack  # of every type checker's own

from fivegates.attempt import Attempt
from fivegates.cache import AnswerCache, AsyncAnswerCache
from fivegates.runner import Outcome

_T = TypeVar("_T")

Action: TypeAlias = Literal[
    "fail_closed", "retry", "fallback", "queue", "degrade", "proceed", "hold",
    "keep_waiting", "accept", "hedge",
]
Owner: TypeAlias = Literal[
    "unknown", "transient", "rate", "quota", "request", "auth", "policy",
    "local",
]
Gate: TypeAlias = Literal[
    "none", "owner", "commit", "budget", "contract", "health",
]
FailureClass: TypeAlias = Literal[
    "other", "connect", "silent", "cut", "rate", "server", "answer",
]
Phase: TypeAlias = Literal[
    "unknown", "connect", "tls", "send", "response", "read", "stream", "body",
]
Scope: TypeAlias = Literal["request", "model", "account", "network", "provider"]
Period: TypeAlias = Literal[
    "unknown", "second", "minute", "hour", "day", "week", "month",
]
Billed: TypeAlias = Literal["maybe", "no", "yes"]
Commit: TypeAlias = Literal["unknown", "none", "partial"]
Effect: TypeAlias = Literal["none", "unknown", "committed"]
Delivery: TypeAlias = Literal["stream", "whole"]
ServerState: TypeAlias = Literal[
    "none", "stored", "conversation", "background", "tools",
]
ToolState: TypeAlias = Literal[
    "requested", "started", "committed", "acknowledged", "failed",
]
EventKind: TypeAlias = Literal[
    "none", "connected", "sent", "accepted", "first_byte", "lifecycle",
    "reasoning", "tool_args", "token", "terminal",
]
Finish: TypeAlias = Literal[
    "none", "stop", "length", "tool_calls", "content_filter", "refusal",
    "error", "pause", "other",
]
Feature: TypeAlias = Literal[
    "tools", "parallel_tools", "tool_round_trip", "json_schema",
    "system_prompt", "prefill", "reasoning", "citations", "text", "image",
    "audio", "video", "file", "streaming",
]
Unable: TypeAlias = Literal[
    "wait", "reroute", "edit", "clear", "cache", "preset", "queue", "resume",
    "hedge", "tick",
]
Step: TypeAlias = Literal[
    "none", "smaller_model", "shorter", "no_thinking", "compact",
    "without_tools", "cached", "preset",
]
Resume: TypeAlias = Literal["call", "step", "prefill"]
Lookup: TypeAlias = Literal[
    "none", "none_exists", "operation", "metadata_list", "generation_id",
    "invocation_log", "response_id", "reattach", "spend_log",
]
Wire: TypeAlias = Literal[
    "auto", "chat", "responses", "messages", "generateContent",
]
LedgerLine: TypeAlias = Literal["call", "decision", "end"]

class Transport(TypedDict, total=False):
    lib: str | None
    kind: str | None
    code: int | None
    message: str | None

class Progress(TypedDict, total=False):
    visible: int
    lifecycle: int
    reasoning: int
    tool_args_bytes: int
    terminal: Finish | bool | None
    last_byte_ms: int
    last_progress_ms: int

class Evidence(TypedDict, total=False):
    """What was seen of a failed attempt. What is missing is unknown."""

    provider: str | None
    api: str | None
    phase: Phase | None
    status: int | None
    headers: Mapping[str, str] | Iterable[tuple[str, str]] | None
    body: str | bytes | None
    transport: Transport | None
    elapsed_ms: int
    progress: Progress | None
    inner_attempts: int
    origin: Literal["upstream", "local"] | None
    client_gone: bool
    whole_body: bool
    timeout: str | None
    unix_ms: int
    attempt: int

class Prior(TypedDict, total=False):
    attempts: int
    tokens: int
    cost_nusd: int

class ToolCall(TypedDict, total=False):
    id: str | None
    name: str | None
    arguments: str | None

class Rejected(TypedDict):
    route: str
    why: str

class _Ledger(Protocol):
    def write(self, line: str, /) -> object: ...

class _Options(TypedDict, total=False):
    """Keywords of run() and arun(): the facts of begin(), and the hooks."""

    call_id: str | None
    prompt_tokens: int | None
    max_output_tokens: int | None
    request_bytes: int | None
    stream: bool | Literal["true", "false", "impossible"] | None
    delivery: Delivery | None
    features: Iterable[Feature] | None
    tools: Iterable[str] | None
    tool_choice: str | None
    data_class: str | None
    region: str | None
    tenant: str | None
    affinity: str | None
    account: str | None
    server_state: ServerState | None
    unable: Iterable[Unable] | Unable | None
    max_wait_ms: int | None
    prior: Prior | dict[str, int] | None
    language: str | None
    now_ms: int | None
    on_decision: Callable[[Decision, Call], object] | None
    ledger: _Ledger | None
    cached: Callable[[Decision], Any] | None
    cache: AnswerCache | AsyncAnswerCache | None
    cache_key: str | Mapping[str, Any] | None
    preset: Callable[[Decision], Any] | bool | None
    queue: Callable[[Decision, Call], Any] | None
    clear: Callable[[Decision], object] | None
    evidence: Callable[[Any], Evidence | dict[str, Any] | None] | None
    resume: bool
    reraise: bool
    call: Call | None

_Headers = list[tuple[bytes, bytes, bytes]]
# Of a request as an attempt sends it: route, headers (name, value), time-outs,
# seconds for the whole answer, the answer's label.
_Sent = tuple[str, list[tuple[bytes, bytes]], dict[str, float | None],
              float | None, dict[str, Any]]

@final
class Policy:
    """A checked and compiled card. Immutable."""

    def __new__(
        cls, source: str | bytes | PathLike[str] | dict[str, Any],
    ) -> Policy: ...
    @classmethod
    def load(
        cls, source: str | PathLike[str], *, auto_fingerprint: bool = False,
    ) -> Policy: ...
    @classmethod
    def loads(
        cls, source: str | bytes | dict[str, Any], *,
        auto_fingerprint: bool = False, json: bool = False,
    ) -> Policy: ...
    @property
    def fingerprint(self) -> str: ...
    @property
    def nbytes(self) -> int: ...
    def route(self, name: str, /) -> dict[str, Any]: ...
    def routes(self) -> tuple[str, ...]: ...
    def workflows(self) -> tuple[str, ...]: ...
    def lint(self) -> list[dict[str, Any]]: ...
    def contract(self, workflow: str, route: str) -> dict[str, Any]: ...
    def drops_tool(self, workflow: str, route: str, tool: str) -> bool: ...
    def text(self, text: int, language: str | None = None) -> str | None: ...
    def rule_why(self, rule: int, /) -> str: ...

@final
class Region:
    """Shared state of breakers, buckets and budgets."""

    def __new__(
        cls, path: str | PathLike[str] | None = None,
        procs: int | None = None, now_ms: int | None = None,
        existing: bool = False,
    ) -> Region: ...
    @property
    def path(self) -> str | None: ...
    @property
    def warning(self) -> str | None: ...
    def reap(self, slot: int, *, now_ms: int | None = None) -> None: ...
    def _restart(self, now_ms: int, /) -> None: ...

@final
class Engine:
    """Decides for the calls of this process."""

    def __new__(
        cls, policy: Policy | str | PathLike[str] | dict[str, Any],
        region: Region | str | PathLike[str] | None = None,
        seed: int | None = None, clock: Callable[[], int] | None = None,
        procs: int | None = None, slot: int | None = None,
    ) -> Engine: ...
    @property
    def policy(self) -> Policy: ...
    @property
    def region(self) -> Region: ...
    @property
    def slot(self) -> int: ...
    def begin_chat(
        self, workflow: str, body: bytes,
        unable: Iterable[Unable] | Unable | None,
        headers: _Headers | None = None,
        timeouts: dict[str, float | None] | None = None, *,
        now_ms: int | None = None,
    ) -> tuple[Call, str, bool, Decision | None, _Sent | None] | None: ...
    def begin(
        self, workflow: str, /, *, call_id: str | None = None,
        prompt_tokens: int | None = None,
        max_output_tokens: int | None = None,
        request_bytes: int | None = None,
        stream: bool | Literal["true", "false", "impossible"] | None = None,
        delivery: Delivery | None = None,
        features: Iterable[Feature] | None = None,
        tools: Iterable[str] | None = None, tool_choice: str | None = None,
        data_class: str | None = None, region: str | None = None,
        tenant: str | None = None, affinity: str | None = None,
        account: str | None = None, server_state: ServerState | None = None,
        unable: Iterable[Unable] | Unable | None = None,
        max_wait_ms: int | None = None, prior: Prior | None = None,
        language: str | None = None, now_ms: int | None = None,
    ) -> Call: ...
    def resume(self, saved: bytes) -> Call: ...
    @overload
    def run(
        self, workflow: str,
        send: Callable[[Attempt], _T]
        | Mapping[str, Callable[[Attempt], _T]], *,
        outcome: Literal[False] = False,
        sleep: Callable[[float], object] = ..., **options: Unpack[_Options],
    ) -> _T: ...
    @overload
    def run(
        self, workflow: str,
        send: Callable[[Attempt], object]
        | Mapping[str, Callable[[Attempt], object]], *,
        outcome: Literal[True], sleep: Callable[[float], object] = ...,
        **options: Unpack[_Options],
    ) -> Outcome: ...
    @overload
    def arun(
        self, workflow: str,
        send: Callable[[Attempt], Awaitable[_T]]
        | Mapping[str, Callable[[Attempt], Awaitable[_T]]], *,
        outcome: Literal[False] = False,
        sleep: Callable[[float], Awaitable[object]] = ...,
        **options: Unpack[_Options],
    ) -> Coroutine[Any, Any, _T]: ...
    @overload
    def arun(
        self, workflow: str,
        send: Callable[[Attempt], Awaitable[object]]
        | Mapping[str, Callable[[Attempt], Awaitable[object]]], *,
        outcome: Literal[True],
        sleep: Callable[[float], Awaitable[object]] = ...,
        **options: Unpack[_Options],
    ) -> Coroutine[Any, Any, Outcome]: ...
    def reload(
        self, policy: Policy | str | PathLike[str] | dict[str, Any], *,
        now_ms: int | None = None,
    ) -> Engine: ...
    def route(self, name: str, now_ms: int | None = None) -> dict[str, Any]: ...
    def workflow(
        self, name: str, now_ms: int | None = None,
    ) -> dict[str, int]: ...
    def tick(self, now_ms: int | None = None) -> int: ...
    def clock(self, unix_ms: int, now_ms: int | None = None) -> None: ...
    def now_ms(self) -> int: ...
    def _renew(self, now_ms: int | None, /) -> None: ...

@final
class Call:
    """One logical request. One thread at a time."""

    @property
    def id(self) -> str: ...
    @property
    def decision(self) -> Decision: ...
    @property
    def engine(self) -> Engine: ...
    def begin_attempt(self, now_ms: int | None = None) -> Decision: ...
    def event(
        self, kind: EventKind, value: int | Finish | str | None = None, *,
        attempt: int = 0, now_ms: int | None = None,
    ) -> None: ...
    def usage(
        self, *, prompt_tokens: int | None = None,
        cached_tokens: int | None = None, output_tokens: int | None = None,
        cost_usd: float | str | Decimal | None = None,
        cost_nusd: int | None = None, final: bool | None = None,
        attempt: int = 0, now_ms: int | None = None,
    ) -> None: ...
    def tool(
        self, op_id: str, state: ToolState, idempotent: bool = False, *,
        attempt: int = 0, now_ms: int | None = None,
    ) -> None: ...
    def failure(
        self, evidence: Evidence | dict[str, Any], *, attempt: int = 0,
        now_ms: int | None = None,
    ) -> Decision: ...
    def success(
        self, *, prompt_tokens: int | None = None,
        cached_tokens: int | None = None, output_tokens: int | None = None,
        cost_usd: float | str | Decimal | None = None,
        cost_nusd: int | None = None,
        finish_reason: Finish | None = None, output: str | bytes | None = None,
        visible: int | None = None,
        tool_calls: Iterable[ToolCall] | None = None,
        final: bool | None = None, attempt: int = 0,
        now_ms: int | None = None,
    ) -> Decision: ...
    def chat_success(
        self, body: bytes, headers: _Headers | None = None, *,
        attempt: int = 0, now_ms: int | None = None,
    ) -> Decision | None: ...
    def deadline(self, now_ms: int | None = None) -> Decision: ...
    def unable(
        self, what: Unable | Iterable[Unable], *, now_ms: int | None = None,
    ) -> Decision: ...
    def step(
        self, prompt_tokens: int = 0, max_output_tokens: int = 0, *,
        now_ms: int | None = None,
    ) -> Decision: ...
    def cancel(self, now_ms: int | None = None) -> Decision: ...
    def resolved(
        self, op_id: str, effect: Effect, *, now_ms: int | None = None,
    ) -> Decision: ...
    def _judged(
        self, failure: dict[str, Any], inner: int, status: int, now_ms: int, /,
    ) -> Decision: ...
    def _answered(
        self, rejected: str | None, prompt_tokens: int, output_tokens: int,
        cost_nusd: int, now_ms: int, /,
    ) -> Decision: ...
    def end(self) -> None: ...
    def save(self) -> bytes: ...
    def forget(self) -> None: ...
    def ledger_line(
        self, line: LedgerLine, decision: Decision | None = None, *,
        now_ms: int | None = None, response_id: str | None = None,
        request_id: str | None = None,
    ) -> str: ...

@final
class Decision:
    """What to do now. *_left None: no limit."""

    __match_args__: Final = ("action", "route")
    @property
    def action(self) -> Action: ...
    @property
    def route(self) -> str | None: ...
    @property
    def route_id(self) -> int: ...
    @property
    def attempt(self) -> int: ...
    @property
    def wait_ms(self) -> int: ...
    @property
    def wake_ms(self) -> int: ...
    @property
    def reason(self) -> str: ...
    @property
    def detail(self) -> str: ...
    @property
    def gate(self) -> Gate: ...
    @property
    def owner(self) -> Owner: ...
    @property
    def kind(self) -> str: ...
    @property
    def step(self) -> int: ...
    @property
    def ladder_step(self) -> Step | None: ...
    @property
    def resume_from(self) -> Resume: ...
    @property
    def lookup(self) -> Lookup: ...
    @property
    def cancel(self) -> int: ...
    @property
    def attempts_left(self) -> int | None: ...
    @property
    def elapsed_left_ms(self) -> int | None: ...
    @property
    def tokens_left(self) -> int | None: ...
    @property
    def cost_left_nusd(self) -> int | None: ...
    @property
    def may_pay_twice(self) -> bool: ...
    @property
    def connect_ms(self) -> int: ...
    @property
    def first_token_ms(self) -> int: ...
    @property
    def idle_ms(self) -> int: ...
    @property
    def progress_ms(self) -> int: ...
    @property
    def total_ms(self) -> int: ...
    @property
    def timeouts(self) -> dict[str, int] | None: ...
    @property
    def change(self) -> list[str]: ...
    @property
    def request_changes(self) -> dict[str, Any]: ...
    @property
    def max_tokens(self) -> int: ...
    @property
    def compact_tokens(self) -> int: ...
    @property
    def max_age_s(self) -> int: ...
    @property
    def reuse_ops(self) -> int: ...
    @property
    def repair(self) -> str: ...
    @property
    def alert(self) -> list[str]: ...
    @property
    def text(self) -> str | None: ...
    @property
    def text_id(self) -> int: ...
    @property
    def user(self) -> dict[str, Any]: ...
    @property
    def user_may_retry(self) -> bool: ...
    @property
    def http_hint(self) -> dict[str, Any] | None: ...
    @property
    def hint_status(self) -> int: ...
    @property
    def hint_should_retry(self) -> bool: ...
    @property
    def hint_retry_after_ms(self) -> int: ...
    @property
    def label(self) -> dict[str, Any] | None: ...
    @property
    def requested(self) -> str | None: ...
    @property
    def rejected(self) -> list[Rejected]: ...
    def json(self) -> str: ...
    def to_dict(self) -> dict[str, Any]: ...
    def explain(self) -> str: ...

@final
class Failure:
    """Evidence, normalised."""

    __match_args__: Final = ("owner", "kind")
    @property
    def owner(self) -> Owner: ...
    @property
    def kind(self) -> str: ...
    @property
    def class_(self) -> FailureClass: ...
    @property
    def overload(self) -> bool: ...
    @property
    def trips_breaker(self) -> bool: ...
    @property
    def retry_after_ms(self) -> int | None: ...
    @property
    def period(self) -> Period: ...
    @property
    def should_retry(self) -> bool | None: ...
    @property
    def billed(self) -> Billed: ...
    @property
    def commit(self) -> Commit: ...
    @property
    def scope(self) -> Scope: ...
    @property
    def repair(self) -> str: ...
    @property
    def never_sent(self) -> bool: ...
    @property
    def silent(self) -> bool: ...
    @property
    def local_fault(self) -> bool: ...
    @property
    def rule(self) -> int: ...
    @property
    def why(self) -> str: ...
    def to_dict(self) -> dict[str, Any]: ...

@final
class SseScanner:
    """Reads one answer of a model as it comes."""

    def __new__(cls, wire: Wire = "auto", whole: bool = False) -> SseScanner: ...
    def feed(self, chunk: str | bytes | bytearray | memoryview, /) -> int: ...
    def answer(self) -> dict[str, Any]: ...
    def evidence(self) -> dict[str, Any]: ...
    def response_id(self) -> str | None: ...

def classify(
    evidence: Evidence | dict[str, Any], policy: Policy | None = None,
) -> Failure: ...
def decide(
    facts: dict[str, Any], policy: Policy | None = None,
) -> Decision: ...
def chat_answer(body: bytes, /) -> dict[str, Any] | None: ...
def stamped_headers(headers: _Headers, call_id: str, attempt: int, /) -> _Headers: ...
def chat_request(
    body: bytes, /,
) -> tuple[str, dict[str, Any]] | None: ...
def names(table: str, /) -> dict[str, int]: ...
def gate_of(reason: str, /) -> Gate: ...

VERSION: Final[str]
SAW_BYTE: Final = 1
SAW_LIFECYCLE: Final = 2
SAW_REASONING: Final = 4
SAW_TOKEN: Final = 8
SAW_TOOL_ARGS: Final = 16
SAW_USAGE: Final = 32
SAW_TERMINAL: Final = 64
SAW_ERROR: Final = 128
SAW_MALFORMED: Final = 256
ACTION_FAIL_CLOSED: Final = "fail_closed"
ACTION_RETRY: Final = "retry"
ACTION_FALLBACK: Final = "fallback"
ACTION_QUEUE: Final = "queue"
ACTION_DEGRADE: Final = "degrade"
ACTION_PROCEED: Final = "proceed"
ACTION_HOLD: Final = "hold"
ACTION_KEEP_WAITING: Final = "keep_waiting"
ACTION_ACCEPT: Final = "accept"
ACTION_HEDGE: Final = "hedge"
OWNER_UNKNOWN: Final = "unknown"
OWNER_TRANSIENT: Final = "transient"
OWNER_RATE: Final = "rate"
OWNER_QUOTA: Final = "quota"
OWNER_REQUEST: Final = "request"
OWNER_AUTH: Final = "auth"
OWNER_POLICY: Final = "policy"
OWNER_LOCAL: Final = "local"
GATE_NONE: Final = "none"
GATE_OWNER: Final = "owner"
GATE_COMMIT: Final = "commit"
GATE_BUDGET: Final = "budget"
GATE_CONTRACT: Final = "contract"
GATE_HEALTH: Final = "health"
REASON_NONE: Final = "none"
REASON_PRIMARY_READY: Final = "primary_ready"
REASON_COMPLETE: Final = "complete"
REASON_IN_TIME: Final = "in_time"
REASON_PRIMARY_OUT: Final = "primary_out"
REASON_TOO_EARLY: Final = "too_early"
REASON_TRANSIENT: Final = "transient"
REASON_RATE_LIMITED: Final = "rate_limited"
REASON_QUOTA_EXHAUSTED: Final = "quota_exhausted"
REASON_REQUEST_INVALID: Final = "request_invalid"
REASON_KEY_REJECTED: Final = "key_rejected"
REASON_REFUSED: Final = "refused"
REASON_UNKNOWN_FAILURE: Final = "unknown_failure"
REASON_CLIENT_GONE: Final = "client_gone"
REASON_LOCAL_FAULT: Final = "local_fault"
REASON_BAD_ANSWER: Final = "bad_answer"
REASON_ROUTE_MISCONFIGURED: Final = "route_misconfigured"
REASON_TOO_LARGE: Final = "too_large"
REASON_UNSUPPORTED: Final = "unsupported"
REASON_SERVER_FORBADE_RETRY: Final = "server_forbade_retry"
REASON_OWNER_STOPS: Final = "owner_stops"
REASON_TRUNCATED_TOOL_CALL: Final = "truncated_tool_call"
REASON_PARTIAL_OUTPUT: Final = "partial_output"
REASON_MAY_HAVE_RUN: Final = "may_have_run"
REASON_RECONCILE_FIRST: Final = "reconcile_first"
REASON_EFFECT_COMMITTED: Final = "effect_committed"
REASON_TOO_MANY_OPERATIONS: Final = "too_many_operations"
REASON_ATTEMPTS_EXHAUSTED: Final = "attempts_exhausted"
REASON_ROUTE_ATTEMPTS_EXHAUSTED: Final = "route_attempts_exhausted"
REASON_CLASS_RETRIES_EXHAUSTED: Final = "class_retries_exhausted"
REASON_RESENDS_EXHAUSTED: Final = "resends_exhausted"
REASON_ELAPSED_EXHAUSTED: Final = "elapsed_exhausted"
REASON_WAIT_DOES_NOT_FIT: Final = "wait_does_not_fit"
REASON_TOKENS_EXHAUSTED: Final = "tokens_exhausted"
REASON_COST_EXHAUSTED: Final = "cost_exhausted"
REASON_RETRY_BUCKET_EMPTY: Final = "retry_bucket_empty"
REASON_RETRIES_IN_FLIGHT: Final = "retries_in_flight"
REASON_RETRIES_PER_HOUR: Final = "retries_per_hour"
REASON_SPEND_PER_DAY: Final = "spend_per_day"
REASON_QUALITY_EXHAUSTED: Final = "quality_exhausted"
REASON_SPILL_EXHAUSTED: Final = "spill_exhausted"
REASON_HOST_CANNOT_WAIT: Final = "host_cannot_wait"
REASON_HOST_UNABLE: Final = "host_unable"
REASON_LIMIT_PERSISTS: Final = "limit_persists"
REASON_SPILL_FORBIDDEN: Final = "spill_forbidden"
REASON_ESTIMATE_DOES_NOT_FIT: Final = "estimate_does_not_fit"
REASON_FASTER_ELSEWHERE: Final = "faster_elsewhere"
REASON_NO_STAND_IN: Final = "no_stand_in"
REASON_NOT_APPROVED: Final = "not_approved"
REASON_CONTRACT_STALE: Final = "contract_stale"
REASON_CONTRACT_EXPIRED: Final = "contract_expired"
REASON_CONTRACT_SECTION_FAILS: Final = "contract_section_fails"
REASON_NO_WALL_CLOCK: Final = "no_wall_clock"
REASON_DOES_NOT_FIT_TOKENS: Final = "does_not_fit_tokens"
REASON_DOES_NOT_FIT_FEATURES: Final = "does_not_fit_features"
REASON_DOES_NOT_FIT_DATA: Final = "does_not_fit_data"
REASON_DOES_NOT_FIT_REGION: Final = "does_not_fit_region"
REASON_SAME_SCOPE: Final = "same_scope"
REASON_SAME_BUDGET: Final = "same_budget"
REASON_SAME_VENDOR: Final = "same_vendor"
REASON_OUTPUT_REJECTED: Final = "output_rejected"
REASON_DOES_NOT_FIT_TOOLS: Final = "does_not_fit_tools"
REASON_DOES_NOT_FIT_ACCOUNT: Final = "does_not_fit_account"
REASON_MISSING_EVIDENCE: Final = "missing_evidence"
REASON_ROUTE_OPEN: Final = "route_open"
REASON_ROUTE_STALLED: Final = "route_stalled"
REASON_ROUTE_FULL: Final = "route_full"
REASON_ROUTE_PACED: Final = "route_paced"
REASON_ROUTE_TOLD_TO_WAIT: Final = "route_told_to_wait"
REASON_QUOTA_LATCHED: Final = "quota_latched"
REASON_KEY_LATCHED: Final = "key_latched"
REASON_ROUTE_LATCHED: Final = "route_latched"
REASON_SILENT_ROUTE: Final = "silent_route"
REASON_SLOW_ROUTE: Final = "slow_route"
REASON_CHAIN_EXHAUSTED: Final = "chain_exhausted"
REASON_RAMPING: Final = "ramping"
REASON_CUT_ROUTE: Final = "cut_route"
