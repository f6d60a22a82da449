"""How far a request came, by the HTTP client's own trace.

httpx and httpx2 tell of each step through request.extensions["trace"]. The
names of their exceptions are no substitute: under another backend a request
that was sent may come back as ConnectTimeout.
"""

from __future__ import annotations

import typing

__all__ = ["Trace"]

# Event -> how far the request is from then on. What comes before the first of
# these is a connection or the wait for one.
_REACHED = {
    "connection.start_tls.started": "tls",
    "http11.send_request_headers.started": "send",
    "http2.send_request_headers.started": "send",
    "http11.receive_response_headers.started": "read",
    "http2.receive_response_headers.started": "read",
}


class Trace:
    """Notes the phase; tells `sent` before the first byte goes out."""

    def __init__(self, sent: "typing.Callable[[], None]",
                 chained: "typing.Callable[..., typing.Any] | None") -> None:
        self.phase: "str | None" = None  # None: this backend does not trace
        self._sent = sent
        self.chained = chained

    def _note(self, name: str, info: "dict[str, typing.Any]") -> None:
        phase = _REACHED.get(name)
        if phase is not None:
            if getattr(info.get("request"), "method", None) == b"CONNECT":
                return  # a proxy is asked for a connection
            if phase == "send":
                self._sent()
            self.phase = phase
        elif self.phase is None:
            self.phase = "connect"

    def note(self, name: str, info: "dict[str, typing.Any]") -> typing.Any:
        """The callback of extensions["trace"]."""
        if name in _REACHED or self.phase is None:
            self._note(name, info)
        if self.chained is not None:
            return self.chained(name, info)
        return None

    async def anote(self, name: str, info: "dict[str, typing.Any]") -> None:
        """The callback for async clients, which must be a coroutine."""
        if name in _REACHED or self.phase is None:
            self._note(name, info)
        if self.chained is not None:
            await self.chained(name, info)

    def late(self, head_seen: bool, first_token: bool) -> "dict[str, typing.Any]":
        """Evidence of an attempt given up by one of our clocks."""
        if self.phase in ("connect", "tls"):
            return {"phase": self.phase, "transport": {
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
        if self.phase is not None:
            evidence["phase"] = self.phase
        elif (evidence.get("transport") or {}).get("lib") == "httpx":
            evidence["phase"] = "unknown"
