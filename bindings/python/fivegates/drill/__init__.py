"""The fault drills: what a client's recovery does under a provider's fault.

run() simulates strategies under faults and answers the measurements; the
command `fivegates drill` prints them, judges the goals and writes the report.
"""

from fivegates.drill.runs import (DrillError, Measured, Progress, Results, Row,
                                  fault_names, run)

__all__ = ["DrillError", "Measured", "Progress", "Results", "Row",
           "fault_names", "run"]
