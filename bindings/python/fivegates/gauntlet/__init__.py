"""The gauntlet: somebody's program, run under every fault of a provider.

play() runs a plan and answers the measurements; the command is `fivegates
gauntlet -- CMD`. It looks at what arrives at the provider and how the program
ends; the program takes no part in it beyond its base URL.
"""

from fivegates.gauntlet.plan import (Limits, Plan, Trial, read_plan,
                                     standard_plan)
from fivegates.gauntlet.play import Played, Result, play
from fivegates.gauntlet.program import GauntletError

__all__ = ["GauntletError", "Limits", "Plan", "Played", "Result", "Trial",
           "play", "read_plan", "standard_plan"]
