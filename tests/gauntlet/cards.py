"""The examples' cards, at the gauntlet's provider."""

import os
import pathlib
import re

import fivegates


def policy_of(folder: pathlib.Path) -> fivegates.Policy:
    """A card with the standard back-off: the examples' own is shortened so that
    they are quick to look at, and would hammer a real provider."""
    text = (folder / "card.yaml").read_text(encoding="utf-8")
    text = re.sub(r"^backoff:.*\n", "", text, flags=re.M)
    return fivegates.Policy.loads(text.replace(
        "http://127.0.0.1:0", os.environ["ANTHROPIC_BASE_URL"]))
