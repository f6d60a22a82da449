"""A great ledger against a great export: seconds and memory of `fivegates
reconcile`.

    python benchmarks/python/bench_reconcile.py [ATTEMPTS] [--export openrouter|openai]
                                                [--folder DIR] [--keep]

Writes a ledger as the core does (about a kilobyte for each decision) with one
attempt in ten cut off and half of those billed, reconciles it in a process of
its own, and prints its time and the greatest resident sizes of it and of the
process it starts to read the ledger, added up.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import os
import pathlib
import random
import re
import resource
import subprocess
import sys
import tempfile
import time
import typing

START = 1_793_620_800  # Unix seconds
WEEK = 7 * 86_400

_HEAD = ('{"line":"%s","v":1,"unix_ms":%d,"now_ms":%d,"workflow":"answer","call":"%s","step":0,'
         '"policy":"sha256:fdb3aed3f8eab21d40f764b3a263d28b2d371816ff489f4ef8828facf9431358",')
_CALL = ('"prompt_tokens":%d,"gen_ai.request.max_tokens":1000,"request_bytes":0,"stream":"true","delivery":'
         '"stream","server_state":"none","features":[],"unable":["hedge"],"max_wait_ms":0,"data_class":null,'
         '"region":null,"tenant":null,"affinity":"d83ae8c68e2cb22e","stream_id":"10519110012320ad","prior_tokens":0}\n')
_DECISION = ('%s"breaker":"closed","requested":"main","elapsed_ms":0,"attempts_used":1,"billing":"%s","shown":'
             '"nothing","effect":"none","tokens":%d,"cost_usd":"0.0075",%s"action":"%s","route":"main","attempt":%d,'
             '"wait_ms":0,"wake_ms":0,"reason":"primary_ready","detail":"none","gate":"none","owner":"transient",'
             '"kind":"%s","attempts_left":2,"elapsed_left_ms":60000,"tokens_left":1500,"cost_left_nusd":7500000,'
             '"timeouts":{"connect_ms":5000,"first_token_ms":30000,"idle_ms":30000,"progress_ms":60000,"total_ms":'
             '51667},"request_changes":{},"resume_from":"call","cancel":0,"reuse_ops":0,"ladder_step":null,'
             '"max_age_s":0,"lookup":"none","repair":"none","alert":[],"may_pay_twice":false,"user":{"text":null,'
             '"may_retry":false},"http_hint":null,"label":null,"rejected":[]}\n')
_END = ('"result":"primary_success","action":"accept","reason":"completed","requested":"main","served":"main",'
        '"elapsed_ms":5000,"attempts":1,"attempts_used":1,"requests":1,"resends":0,"tokens":1500,"cost_usd":"0.0075",'
        '"held_usd":"0"}\n')
_ROUTE = '"gen_ai.provider.name":"%s","gen_ai.request.model":"gpt-5.4",'


def write(folder: pathlib.Path, attempts: int, export: str) -> None:
    """The ledger and its export, of a week."""
    rng = random.Random(1)
    route = _ROUTE % export
    cells: "dict[int, list[int]]" = {}
    done = 0
    with open(folder / "ledger.jsonl", "w") as ledger, open(folder / "bill", "w") as bill:
        if export == "openrouter":
            bill.write("generation_id,created_at,cost_total,tokens_prompt,tokens_completion,"
                       "model_permaslug,cancelled,generation_time_ms\n")
        number = 0
        while done < attempts:
            number += 1
            call = f"fg-{number:016x}"
            at = START * 1000 + int(done / attempts * (WEEK - 600) * 1000)
            size, tokens = rng.randrange(200, 9000), 0
            ledger.write(_HEAD % ("call", at, at, call) + _CALL % (size + size // 20))
            ledger.write(_HEAD % ("decision", at, at, call)
                         + _DECISION % (route, "none", 0, "", "proceed", 1, "unknown"))
            for n in (1, 2):
                done += 1
                cut = n == 1 and rng.random() < 0.1
                hold = size + size // 20 + 1000
                ledger.write(_HEAD % ("decision", at, at, call) + _DECISION % (
                    route, "none", tokens + hold, '"held_usd":"0.0075",', "proceed", n, "unknown"))
                out, ident = rng.randrange(20, 900), f"gen-{rng.getrandbits(64):016x}"
                if not cut or rng.random() < 0.5:
                    _book(bill, cells, export, at, size, out, ident)
                at += 3000
                used = f'"gen_ai.response.id":"{ident}","gen_ai.usage.input_tokens":{size},"gen_ai.usage.output_tokens":{out},'
                tokens += hold if cut else size + out
                ledger.write(_HEAD % ("decision", at, at, call) + _DECISION % (
                    "" if cut else route + used, "possible" if cut else "certain", tokens, "",
                    "retry" if cut else "accept", n + cut, "read_timeout" if cut else "unknown"))
                if not cut:
                    break
                at += 500
            ledger.write(_HEAD % ("end", at, at, call) + _END)
        if export == "openai":
            json.dump({"object": "page", "has_more": False, "data": [
                {"object": "bucket", "start_time": minute, "end_time": minute + 60, "results": [{
                    "object": "organization.usage.completions.result", "model": "gpt-5.4",
                    "num_model_requests": cell[0], "input_tokens": cell[1], "input_cached_tokens": 0,
                    "output_tokens": cell[2]}] if (cell := cells.get(minute)) else []}
                for minute in range(START, START + WEEK, 60)]}, bill)


def _book(bill: typing.TextIO, cells: "dict[int, list[int]]", export: str, at: int, size: int,
          out: int, ident: str) -> None:
    if export == "openai":
        cell = cells.setdefault(at // 60_000 * 60, [0, 0, 0])
        cell[0] += 1
        cell[1] += size
        cell[2] += out
        return
    when = datetime.datetime.fromtimestamp(at / 1000, datetime.timezone.utc)
    cost = size * 2_500_000 + out * 15_000_000
    bill.write(f"{ident},{when:%Y-%m-%d %H:%M:%S},0.{cost:012},{size},{out},openai/gpt-5.4,false,3000\n")


def _peaks(pid: int) -> "dict[int, int]":
    """The greatest resident size so far, in KiB, of a process and its children."""
    out: "dict[int, int]" = {}
    for one in pathlib.Path("/proc").glob("[0-9]*/status"):
        with contextlib.suppress(OSError, KeyError):  # it has ended
            said = dict(re.findall(r"^(Pid|PPid|VmHWM):\s+(\d+)", one.read_text(), re.M))
            if pid in (int(said["Pid"]), int(said["PPid"])):
                out[int(said["Pid"])] = int(said["VmHWM"])
    return out


def measure(folder: pathlib.Path) -> "tuple[float, float, int, dict[str, typing.Any]]":
    """Seconds by the clock and of the processors, KiB, and the summary."""
    began = time.monotonic()
    peaks: "dict[int, int]" = {}
    with open(folder / "out.json", "w") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "fivegates", "reconcile", str(folder / "ledger.jsonl"),
             "--bill", str(folder / "bill"), "--price", "openai/gpt-5.4=2.5,15", "--as-of",
             "2026-12-31T00:00:00Z", "--json"], stdout=out)
        while process.poll() is None:
            peaks.update(_peaks(process.pid))
            time.sleep(0.25)
    took = time.monotonic() - began
    if process.returncode:
        sys.exit(process.returncode)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (took, used.ru_utime + used.ru_stime, max(sum(peaks.values()), used.ru_maxrss),
            json.loads((folder / "out.json").read_text()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("attempts", type=int, nargs="?", default=1_000_000)
    parser.add_argument("--export", choices=("openrouter", "openai"), default="openrouter")
    parser.add_argument("--folder", type=pathlib.Path)
    parser.add_argument("--keep", action="store_true", help="do not write it again if it is there")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=asked.folder) as name:
        folder = asked.folder if asked.keep else pathlib.Path(name)
        if not (asked.keep and (folder / "ledger.jsonl").exists()):
            write(folder, asked.attempts, asked.export)
        size = os.path.getsize(folder / "ledger.jsonl")
        took, busy, used, found = measure(folder)
        count = found["ledger"]["attempts"]
        print(f"{count} attempts, {size / 1e9:.1f} GB of ledger, {asked.export}: {took:.1f} s "
              f"({busy:.1f} s of the processors), "
              f"{used / 1024:.0f} MiB, {len(found['findings'])} findings, "
              f"{found['coverage']['ppm'] / 10_000:.1f} % explained")


if __name__ == "__main__":
    main()
