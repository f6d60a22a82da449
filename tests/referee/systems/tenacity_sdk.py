"""tenacity around the openai package: three attempts, exponential waits, on
any exception, and the package's own two retries left as they are. What is
tried again is the function that makes the request and reads the answer."""

from __future__ import annotations

import tenacity

from referee.client import Json, Reply, Screen
from referee.systems.bare import Bare


class Tenacity(Bare):
    packages = ("tenacity", "openai")

    async def model(self, messages: "list[Json]", screen: Screen) -> Reply:
        retrying = tenacity.AsyncRetrying(
            stop=tenacity.stop_after_attempt(3),
            wait=tenacity.wait_exponential(multiplier=1 / self.ask.scale, max=10),
            reraise=True)
        return await retrying(super().model, messages, screen)


SYSTEM = Tenacity
