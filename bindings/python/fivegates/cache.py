"""Answers kept for the ladder's `cached` step.

    cache = AnswerCache(RedisStore(client), secret=os.environ["CACHE_SECRET"])
    engine.run("answer", send, cache=cache, cache_key=request)

An accepted answer is kept, and served later only where the engine's decision
says so: because nothing else can answer, no older than the card's max_age_s,
with the decision's label. Kept is JSON text, never a pickle: the answer, when
it was stored, and the label it had itself (of a stand-in's answer).

A cache that fails is a miss, never a failure of the call: the log is told
once, and the cache is left alone for some seconds, so that a dead one does
not slow each call.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import inspect
import json
import logging
import threading
import time
import typing

from fivegates.errors import ArgumentError

__all__ = ["AnswerCache", "AsyncAnswerCache", "AsyncRedisStore", "CachedAnswer",
           "DiskStore", "MappingStore", "RedisStore"]

_log = logging.getLogger("fivegates.cache")

_PAUSE_S = 5.0
# An answer from another machine's future: its clock may be ahead so far.
_AHEAD_S = 60.0

Label = typing.Dict[str, typing.Any]
Hook = typing.Callable[[typing.Any], typing.Any]


class Store(typing.Protocol):
    """Where texts are kept. keep_s: how long at most, in seconds."""

    def get(self, key: str, /) -> "str | bytes | None": ...
    def set(self, key: str, text: str, keep_s: int, /) -> object: ...


class AsyncStore(typing.Protocol):
    """The same for async code."""

    async def get(self, key: str, /) -> "str | bytes | None": ...
    async def set(self, key: str, text: str, keep_s: int, /) -> object: ...


class MappingStore:
    """Keeps texts in this process: in a cache of cachetools, or a dict.

    How many, and how long, is the mapping's matter: TTLCache(1000, 3600).
    """

    def __init__(self, mapping: "typing.MutableMapping[str, str]") -> None:
        self._mapping = mapping
        self._lock = threading.Lock()  # a cachetools cache has none

    def get(self, key: str) -> "str | None":
        with self._lock:
            return self._mapping.get(key)

    def set(self, key: str, text: str, keep_s: int) -> None:
        with self._lock:
            self._mapping[key] = text


class DiskStore:
    """Keeps texts in a diskcache.Cache, for the processes of a machine.

    diskcache unpickles what somebody else put into its folder as a pickle:
    let nobody else write there.
    """

    def __init__(self, cache: typing.Any) -> None:
        self._cache = cache

    def get(self, key: str) -> "str | None":
        return typing.cast("str | None", self._cache.get(key))

    def set(self, key: str, text: str, keep_s: int) -> None:
        self._cache.set(key, text, expire=keep_s)


class RedisStore:
    """Keeps texts in Redis, by a redis.Redis client.

    An accepted answer waits while it is stored. So give the client a
    socket_timeout of well under a second, and no retries of its own:
    redis.Redis.from_url(url, socket_timeout=0.2) has none, redis.Redis() has
    ten.
    """

    def __init__(self, client: typing.Any) -> None:
        self._client = client

    def get(self, key: str) -> "str | bytes | None":
        return typing.cast("str | bytes | None", self._client.get(key))

    def set(self, key: str, text: str, keep_s: int) -> None:
        self._client.set(key, text, ex=keep_s)


class AsyncRedisStore:
    """The same by a redis.asyncio.Redis client, for an AsyncAnswerCache."""

    def __init__(self, client: typing.Any) -> None:
        self._client = client

    async def get(self, key: str) -> "str | bytes | None":
        return typing.cast("str | bytes | None", await self._client.get(key))

    async def set(self, key: str, text: str, keep_s: int) -> None:
        await self._client.set(key, text, ex=keep_s)


class CachedAnswer(typing.NamedTuple):
    """An answer out of a cache.

    stored_at: unix time in seconds. label: the label the answer had when it
    was new: None, or what a stand-in's answer says of itself.
    """

    answer: typing.Any
    stored_at: float
    label: "Label | None"


class _Answers:
    """What is kept under which key, and what a failing store means."""

    def __init__(self, secret: "str | bytes", keep_s: int,
                 dump: "Hook | None", load: "Hook | None",
                 clock: "typing.Callable[[], float]") -> None:
        self._secret = secret.encode() if isinstance(secret, str) else secret
        if not self._secret:
            raise ArgumentError("secret is empty; give all processes that "
                                "share the cache one random text")
        if keep_s < 1:
            raise ArgumentError(f"keep_s is {keep_s}; give 1 or more seconds")
        self._keep_s = keep_s
        self._dump = dump
        self._load = load
        self._clock = clock
        self._failed_at: "float | None" = None
        self._told_value = False

    def key(self, workflow: str, what: "str | typing.Mapping[str, typing.Any]",
            *, tenant: "str | None" = None,
            language: "str | None" = None) -> str:
        """The key of a request, or of a caller's own name for one.

        It is a hash keyed with the secret: it shows nothing of what it is
        made from. Workflows, tenants and languages never share an answer.
        """
        try:
            text = json.dumps(
                [workflow, tenant, language,
                 what if isinstance(what, str) else dict(what)],
                sort_keys=True, separators=(",", ":"), allow_nan=False)
        except (TypeError, ValueError) as exc:
            raise ArgumentError(
                f"cache_key is no text and no JSON: {exc}; give a text of "
                "your own that says what is asked") from exc
        return "fivegates:" + hmac.new(self._secret, text.encode(),
                                       hashlib.sha256).hexdigest()

    def _pack(self, answer: typing.Any, label: "Label | None") -> "str | None":
        try:
            value = answer if self._dump is None else self._dump(answer)
            kept = ({"bytes": base64.b64encode(value).decode()}
                    if isinstance(value, bytes) else {"json": value})
            text = json.dumps({"v": 1, "at": self._clock(), "label": label,
                               **kept}, allow_nan=False)
            if "json" in kept and json.loads(text)["json"] != value:
                raise TypeError  # a tuple, a key that is no text
        except Exception as exc:
            self._unfit("an answer is not stored", exc, "; give bytes or "
                        "what is the same after JSON, or dump= and load=")
            return None
        return text

    def _unpack(self, text: "str | bytes | None",
                max_age_s: float) -> "CachedAnswer | None":
        if text is None:
            return None
        try:
            kept = json.loads(text)
            if kept["v"] != 1:
                return None  # another release's
            age_s = self._clock() - kept["at"]
            if not -_AHEAD_S <= age_s <= max_age_s:
                return None
            value = (base64.b64decode(kept["bytes"], validate=True)
                     if "bytes" in kept else kept["json"])
            return CachedAnswer(
                value if self._load is None else self._load(value),
                float(kept["at"]), kept["label"])
        except Exception as exc:
            self._unfit("a stored answer is not used", exc, "")
            return None

    def _unfit(self, what: str, exc: Exception, remedy: str) -> None:
        """Told by the exception's class: its text may hold the answer."""
        if not self._told_value:
            _log.warning("%s: %s%s", what, type(exc).__name__, remedy)
        self._told_value = True

    def _rests(self) -> bool:
        return (self._failed_at is not None
                and abs(self._clock() - self._failed_at) < _PAUSE_S)

    def _failed(self, exc: Exception) -> None:
        if self._failed_at is None:
            _log.warning("the answer cache fails, and is a miss until it is "
                         "back: %s: %s", type(exc).__name__, exc)
        self._failed_at = self._clock()


class AnswerCache(_Answers):
    """Keeps accepted answers for the `cached` step of a ladder.

    store: MappingStore, DiskStore, RedisStore, or an object with their two
    methods. secret: any text; processes that share a store share it. keep_s:
    how long the store keeps an answer; at least the cards' max_age_s.
    dump(answer) makes bytes or JSON of it, load(that) the answer again: for
    objects of an SDK, model_dump and model_validate of their class. clock:
    unix time in seconds.

    Answers with calls of tools are not kept by run(): repeated later they
    would act again.
    """

    def __init__(self, store: Store, *, secret: "str | bytes",
                 keep_s: int = 86400, dump: "Hook | None" = None,
                 load: "Hook | None" = None,
                 clock: "typing.Callable[[], float]" = time.time) -> None:
        super().__init__(secret, keep_s, dump, load, clock)
        if not callable(getattr(store, "set", None)):
            raise ArgumentError(
                f"store is a {type(store).__name__}, which has no get() and "
                f"set(); wrap it: MappingStore(...), DiskStore(...) or "
                f"RedisStore(...)")
        self._store = store

    def lookup(self, key: str, max_age_s: float) -> "CachedAnswer | None":
        """The answer under key, no older than max_age_s; None: a miss."""
        if self._rests():
            return None
        try:
            text = self._store.get(key)
        except Exception as exc:
            self._failed(exc)
            return None
        self._failed_at = None
        return self._unpack(text, max_age_s)

    def store(self, key: str, answer: typing.Any,
              label: "Label | None" = None) -> None:
        """Keeps an answer, in place of an older one."""
        if self._rests():
            return
        text = self._pack(answer, label)
        if text is None:
            return
        try:
            self._store.set(key, text, self._keep_s)
        except Exception as exc:
            self._failed(exc)
        else:
            self._failed_at = None


class AsyncAnswerCache(_Answers):
    """AnswerCache for engine.arun(), which is not blocked by it. store:
    AsyncRedisStore, or an object with its two methods."""

    def __init__(self, store: AsyncStore, *, secret: "str | bytes",
                 keep_s: int = 86400, dump: "Hook | None" = None,
                 load: "Hook | None" = None,
                 clock: "typing.Callable[[], float]" = time.time) -> None:
        super().__init__(secret, keep_s, dump, load, clock)
        self._store = store

    async def lookup(self, key: str,
                     max_age_s: float) -> "CachedAnswer | None":
        """The answer under key, no older than max_age_s; None: a miss."""
        if self._rests():
            return None
        try:
            text = await self._store.get(key)
        except Exception as exc:
            self._failed(exc)
            return None
        self._failed_at = None
        return self._unpack(text, max_age_s)

    async def store(self, key: str, answer: typing.Any,
                    label: "Label | None" = None) -> None:
        """Keeps an answer, in place of an older one."""
        if self._rests():
            return
        text = self._pack(answer, label)
        if text is None:
            return
        try:
            await self._store.set(key, text, self._keep_s)
        except Exception as exc:
            self._failed(exc)
        else:
            self._failed_at = None


def key_of_call(workflow: str, cache: "AnswerCache | AsyncAnswerCache | None",
                cache_key: "str | typing.Mapping[str, typing.Any] | None",
                facts: "dict[str, typing.Any]", *,
                cached: "Hook | None", blocking: bool) -> str:
    """The key of a call's answer, for run() (blocking) and arun()."""
    if cache is None or cache_key is None:
        raise ArgumentError("cache= and cache_key= go together; the key is "
                            "the request, or a text that says what is asked")
    if cached is not None:
        raise ArgumentError("cached= and cache= are two answers to one step; "
                            "give one of them")
    if blocking and inspect.iscoroutinefunction(cache.lookup):
        raise ArgumentError("run() cannot wait for an async cache; give an "
                            "AnswerCache, or use arun()")
    return cache.key(workflow, cache_key, tenant=facts.get("tenant"),
                     language=facts.get("language"))
