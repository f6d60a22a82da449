"""How far a request came, by the HTTP client's own trace.

httpx and httpx2 tell of each step through request.extensions["trace"]. The
names of their exceptions are no substitute: under another backend a request
that was sent may come back as ConnectTimeout.
"""

from __future__ import annotations

import typing

__all__ = ["ByBody", "Trace"]

# The furthest first: an event, and how far the request is from then on. What
# comes before all of these is a connection or the wait for one.
_REACHED = (
    ("http11.receive_response_headers.started", "read"),
    ("http2.receive_response_headers.started", "read"),
    ("http11.send_request_headers.started", "send"),
    ("http2.send_request_headers.started", "send"),
    ("connection.start_tls.started", "tls"),
)
# The method of another request in between: a proxy is asked for a connection.
_PROXY = b"CONNECT"


class Trace:
    """Keeps the events of one request; what they mean is asked where it
    failed or was left, which few do."""

    def __init__(self, chained: "typing.Callable[..., typing.Any] | None",
                 ) -> None:
        self.chained = chained
        self._events: "dict[str, dict[str, typing.Any]]" = {}
        # For extensions["trace"]. The dict's own method, as a function of
        # ours would be called half a dozen times a request.
        self.callback: "typing.Callable[[str, dict[str, typing.Any]], typing.Any]" = (
            self._events.__setitem__ if chained is None else self._chain)

    def _chain(self, name: str, info: "dict[str, typing.Any]") -> typing.Any:
        self._events[name] = info
        assert self.chained is not None
        return self.chained(name, info)

    async def acallback(self, name: str, info: "dict[str, typing.Any]") -> None:
        """The callback for async clients, which must be a coroutine."""
        self._events[name] = info
        if self.chained is not None:
            await self.chained(name, info)

    @property
    def phase(self) -> "str | None":
        """How far it came; None: this backend does not trace."""
        for name, phase in _REACHED:
            info = self._events.get(name)
            if info is not None and getattr(info.get("request"), "method",
                                            None) != _PROXY:
                return phase
        return "connect" if self._events else None

    @property
    def sent(self) -> bool:
        """Whether the first byte may have gone out."""
        return self.phase in ("send", "read")

    def clear(self) -> None:
        """Lets go of what the events hold: an exception, its frames."""
        self._events.clear()

    def late(self, head_seen: bool, first_token: bool) -> "dict[str, typing.Any]":
        """Evidence of an attempt given up by one of our clocks."""
        phase = self.phase
        if phase in ("connect", "tls"):
            return {"phase": phase, "transport": {
                "lib": "httpx", "kind": "ConnectTimeout"}}
        return {"phase": "stream" if head_seen else "read",
                "timeout": ("first_token_timeout" if first_token
                            else "total_timeout")}

    def correct(self, evidence: "dict[str, typing.Any]") -> None:
        """Puts the traced phase into evidence of a transport error.

        Without a trace nothing proves that a request was never sent, unless
        an exception beneath does (another backend's own).
        """
        kind = (evidence.get("transport") or {}).get("kind")
        if kind == "PoolTimeout" or "status" in evidence:
            return
        phase = self.phase
        if phase is not None:
            evidence["phase"] = phase
        elif (evidence.get("transport") or {}).get("lib") == "httpx":
            evidence["phase"] = "unknown"


class ByBody(Trace):
    """How far a request came that was not traced, by whether its body was
    asked for: no byte of it is out before, and nobody acts on a head alone.

    It costs less: for each event httpcore does more than we. Whether a request
    was being sent or answered then is the exception's to say.
    """

    def __init__(self, asked: bool) -> None:
        super().__init__(None)
        self._asked = asked

    @property
    def phase(self) -> str:
        """How far it came: "connect" or "send"."""
        return "send" if self._asked else "connect"

    def correct(self, evidence: "dict[str, typing.Any]") -> None:
        said = evidence.get("phase")
        super().correct(evidence)
        if evidence.get("phase") == "send" and said != "send":
            evidence["phase"] = "read"  # the later of the two
        if not self._asked and said not in (None, "unknown"):
            evidence["phase"] = said  # a handshake; or a part of the head is out
