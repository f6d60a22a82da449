"""Ledgers against bills: which failed attempts were paid for, and how much.

    from fivegates.reconcile import reconcile

    with reconcile(["calls.jsonl"], ["activity.csv"]) as report:
        for finding in report.findings():
            print(finding["call"], finding["confidence"], finding["wasted_hi"])

Also a command: `fivegates reconcile LEDGER... --bill EXPORT`.
"""

from fivegates.reconcile.report import Report
from fivegates.reconcile.rows import ReconcileError
from fivegates.reconcile.run import reconcile

__all__ = ["ReconcileError", "Report", "reconcile"]
