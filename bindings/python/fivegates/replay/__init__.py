"""`fivegates replay`: a ledger decided again, by its own card or another one.

By its own card every line must come out as it was written, to the byte: check().
By another card it is a forecast: forecast().
"""

from fivegates.replay.check import Checked, check
from fivegates.replay.lines import ReplayError
from fivegates.replay.survey import Survey, survey

__all__ = ["Checked", "ReplayError", "Survey", "check", "survey"]
