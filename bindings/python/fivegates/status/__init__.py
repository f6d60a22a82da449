"""`fivegates status`, the live region, and `fivegates report`, the ledger: what
a person on call has to see."""

from fivegates.status.day import Report, report
from fivegates.status.live import live

__all__ = ["Report", "live", "report"]
