"""examples/agent at the gauntlet: one order, its shop at the effects address."""

import os
import pathlib
import sys

import fivegates

HERE = pathlib.Path(__file__).resolve().parent
sys.path.append(str(HERE.parents[1] / "examples" / "agent"))
import agent  # noqa: E402
from cards import policy_of  # noqa: E402

os.environ.update(AGENT_KEY="k", AGENT_KEY_BACKUP="k")
buyer = agent.Agent(fivegates.Engine(policy_of(agent.HERE)),
                    os.environ["GAUNTLET_EFFECTS_URL"] + "/charge_card")
try:
    print(buyer.run("order-1"))
except fivegates.Refused as refused:
    sys.exit(f"refused: {refused.user_text} ({refused})")
except fivegates.StateError as error:
    sys.exit(f"stopped: {error}")
