"""Requests read from a connection. h11 reads them; what is answered is not its
business, as a fault must be able to send anything."""

from __future__ import annotations

import asyncio
import typing

from fivegates.errors import FivegatesError

if typing.TYPE_CHECKING:
    import h11

__all__ = ["BadRequest", "Incoming", "Received", "need_h11"]

_MAX_HEAD = 256 << 10
_MAX_BODY = 64 << 20


def need_h11() -> None:
    """FivegatesError where the library is missing."""
    try:
        import h11  # noqa: F401 - here: the other commands do without
    except ModuleNotFoundError:
        raise FivegatesError("the provider reads HTTP with h11; pip install "
                             "'fivegates[provider]'") from None


class BadRequest(Exception):
    """No HTTP, or more of it than is taken."""


class Received(typing.NamedTuple):
    """A request. Names of headers are in lower case."""

    method: str
    path: str
    headers: "dict[str, str]"
    body: bytes
    keep: bool  # the client wants to send more on this connection


class Incoming:
    """The requests of one connection, one after the other."""

    def __init__(self, reader: asyncio.StreamReader,
                 writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._ahead = b""

    def put_back(self, raw: bytes) -> None:
        """Bytes that came while the last request was answered."""
        self._ahead += raw

    async def next(self) -> "Received | None":
        """The next request; None: the client has closed the connection."""
        import h11

        conn = h11.Connection(h11.SERVER, max_incomplete_event_size=_MAX_HEAD)
        if self._ahead:
            conn.receive_data(self._ahead)
        head: "h11.Request | None" = None
        body = bytearray()
        while True:
            try:
                event = conn.next_event()
            except h11.RemoteProtocolError as exc:
                raise BadRequest(str(exc)) from None
            if event is h11.NEED_DATA:
                if conn.they_are_waiting_for_100_continue:
                    conn.send(h11.InformationalResponse(
                        status_code=100, headers=[]))
                    self._writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
                conn.receive_data(await self._reader.read(65536))
            elif isinstance(event, h11.Request):
                head = event
            elif isinstance(event, h11.Data):
                body += event.data
                if len(body) > _MAX_BODY:
                    raise BadRequest(f"a body above {_MAX_BODY >> 20} MiB")
            elif isinstance(event, h11.EndOfMessage) and head is not None:
                self._ahead = bytes(conn.trailing_data[0])
                return self._received(head, bytes(body), conn)
            else:  # ConnectionClosed
                return None

    @staticmethod
    def _received(head: h11.Request, body: bytes,
                  conn: h11.Connection) -> Received:
        headers = {name.decode("latin-1"): value.decode("latin-1")
                   for name, value in head.headers}
        import h11

        return Received(head.method.decode("latin-1"),
                        head.target.decode("latin-1"), headers, body,
                        conn.their_state is not h11.MUST_CLOSE)
