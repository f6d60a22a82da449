"""Functions of the user's, beside the event loop."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import threading
import typing

__all__ = ["in_thread"]

T = typing.TypeVar("T")


async def in_thread(function: "typing.Callable[..., T]", *args: object) -> T:
    """Calls in a thread of its own, which a program that ends does not wait for: a
    function that hangs must not keep what was interrupted."""
    loop = asyncio.get_running_loop()
    future: "asyncio.Future[T]" = loop.create_future()
    context = contextvars.copy_context()

    def done(value: "T | None", error: "BaseException | None") -> None:
        if future.done():  # given up
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(typing.cast(T, value))

    def work() -> None:
        value: "T | None" = None
        error: "BaseException | None" = None
        try:
            value = context.run(function, *args)
        except BaseException as exc:
            error = exc
        with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile
            loop.call_soon_threadsafe(done, value, error)

    threading.Thread(target=work, daemon=True).start()
    return await future
