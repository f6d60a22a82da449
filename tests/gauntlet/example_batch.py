"""examples/batch at the gauntlet: two jobs. What is queued for later than a few
seconds is left to another day: exit code 75, "try again later"."""

import os
import pathlib
import sys
import tempfile
import time

import fivegates

HERE = pathlib.Path(__file__).resolve().parent
sys.path.append(str(HERE.parents[1] / "examples" / "batch"))
import batch  # noqa: E402
from cards import policy_of  # noqa: E402
from jobs import Jobs  # noqa: E402


class Today(Jobs):
    def next(self):  # type: ignore[no-untyped-def]
        row = self.db.execute("SELECT min(due) FROM jobs WHERE state = 'waiting'"
                              ).fetchone()
        return None if (row[0] or 0) > time.time() + 2 else super().next()


os.environ["BATCH_KEY"] = "k"
with tempfile.TemporaryDirectory() as name:
    jobs = Today(pathlib.Path(name))
    jobs.add(2)
    batch.work(fivegates.Engine(policy_of(batch.HERE), region=str(
        pathlib.Path(name) / "region")), jobs)
    counts = jobs.counts()
    jobs.close()
print(counts)
sys.exit(75 if "waiting" in counts else 1 if "failed" in counts else 0)
