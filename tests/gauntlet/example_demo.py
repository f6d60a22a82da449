"""examples/demo at the gauntlet: its guarded client, for a user who asks and one
who wants a refund. (Where every request is refused at first, retries are paid
by the few that a process begins with.)"""

import json
import os
import pathlib
import sys
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
sys.path.append(str(HERE.parents[1] / "examples" / "demo"))
import demo  # noqa: E402

os.environ["DEMO_KEY"] = "k"


class Provider:
    """The demo's view of its provider: the gauntlet's, and its effects."""

    url = os.environ["ANTHROPIC_BASE_URL"]

    def call(self, path: str, body: "dict | None" = None) -> dict:
        effects = os.environ["GAUNTLET_EFFECTS_URL"] + "/refund"
        if body is None:
            effects += "?op=" + path.rpartition("/")[2]
        raw = json.dumps(body).encode() if body is not None else None
        with urllib.request.urlopen(urllib.request.Request(effects, raw, {
                "Content-Type": "application/json"}), timeout=5) as answer:
            said = json.load(answer)
        return {"done": bool(said.get("count"))}


client = demo.Guarded(Provider())
served = [client.serve(number) for number in (demo.TOOL_EVERY - 1, demo.TOOL_EVERY)]
for decision, _, _ in client.shown:
    if decision.action == "degrade":
        print("a preset stood in for an answer")
print(f"{sum(served)} of {len(served)} served")
sys.exit(0 if all(served) else 1)
