"""The list of jobs, in a file that a killed worker leaves whole."""

from __future__ import annotations

import json
import pathlib
import sqlite3
import time
import typing


class Jobs:
    """What is done is done once; what is queued is due later."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.db = sqlite3.connect(folder / "jobs.db", isolation_level=None)
        self.db.execute("CREATE TABLE IF NOT EXISTS jobs (id INTEGER PRIMARY "
                        "KEY, text, state DEFAULT 'waiting', prior, due "
                        "DEFAULT 0, answer)")

    def add(self, count: int) -> None:
        self.db.executemany("INSERT INTO jobs (text) VALUES (?)",
                            [(f"Text {i}",) for i in range(count)])

    def next(self) -> "tuple[int, str, dict[str, int] | None] | None":
        """The next job, as soon as it is due; None: no more."""
        row = self.db.execute("SELECT id, text, prior, due FROM jobs WHERE state "
                              "= 'waiting' ORDER BY due, id LIMIT 1").fetchone()
        if row is None:
            return None
        time.sleep(max(0.0, row[3] - time.time()))
        return row[0], row[1], json.loads(row[2]) if row[2] else None

    def put(self, job: int, **values: typing.Any) -> None:
        names = ", ".join(f"{name} = ?" for name in values)
        self.db.execute(f"UPDATE jobs SET {names} WHERE id = ?",
                        (*values.values(), job))

    def counts(self) -> "dict[str, int]":
        return dict(self.db.execute(
            "SELECT state, count(*) FROM jobs GROUP BY state").fetchall())

    def close(self) -> None:
        self.db.close()
