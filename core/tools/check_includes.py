"""A file of core/src includes only its own module and lower levels.

The table below is the module map of core/src: a module stands on the levels
under it. core/src never includes core/card or core/host; core/card may
include core/src; both may name only pure system headers.
"""

import pathlib
import re
import sys

LEVELS = [
    ["fg_base", "fg_atomic"],
    ["fg_error", "fg_math", "fg_names", "fg_text"],
    # the compiled card
    ["fg_rules", "fg_scan"],
    ["fg_policy"],
    # text
    ["fg_builtin", "fg_hint", "fg_keys", "fg_kinds"],
    ["fg_signs", "fg_sse"],
    ["fg_classify", "fg_decision_json", "fg_output"],
    # numbers, and single words of shared state
    ["fg_backoff", "fg_gauge", "fg_gcra", "fg_rendezvous", "fg_sketch",
     "fg_spend", "fg_window"],
    ["fg_breaker", "fg_bucket", "fg_spill"],
    ["fg_cadence", "fg_limit", "fg_pace", "fg_stall"],
    # the pure kernel
    ["fg_contract", "fg_gates"],
    ["fg_weigh"],
    ["fg_decide"],
    # shared state
    ["fg_region"],
    ["fg_witness"],
    ["fg_health"],
    # the engine, a call
    ["fg_call_state", "fg_engine"],
    ["fg_commit", "fg_estimate", "fg_kept", "fg_money", "fg_view"],
    ["fg_facts"],
    ["fg_call"],
    # text for people and the exported functions
    ["fg_abi", "fg_explain", "fg_ledger"],
]
# Files of a module whose names do not begin with its name.
MEMBERS = {"fg_gate": "fg_gates"}
SYSTEM = {
    "src": {"stdint.h", "stddef.h", "stdbool.h", "string.h", "limits.h",
            "stdatomic.h"},
    "card": {"stdint.h", "stddef.h", "stdbool.h", "string.h", "limits.h",
             "inttypes.h", "math.h", "cjson/cJSON.h", "cJSON.h"},
}
LEVEL = {name: i for i, names in enumerate(LEVELS) for name in names}
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.M)


def module_of(stem: str) -> "str | None":
    """fg_scan_where.c is of fg_scan: the longest listed name it begins with."""
    words = stem.split("_")
    for n in range(len(words), 1, -1):
        name = "_".join(words[:n])
        name = MEMBERS.get(name, name)
        if name in LEVEL:
            return name
    return None


def main() -> int:
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".")
    wrong = []
    own = {area: {p.name for p in (root / "core" / area).glob("*.[hi]*")}
           for area in ("src", "card")}
    files = [(area, path) for area in ("src", "card")
             for path in sorted((root / "core" / area).glob("*.[chi]*"))]
    for area, path in files:
        name = path.relative_to(root).as_posix()
        stem = module_of(path.stem)
        if area == "src" and stem is None:
            wrong.append(
                f"{name}: add {path.stem} to the table in check_includes.py")
            continue
        for mark, target in INCLUDE.findall(path.read_text(encoding="utf-8")):
            if mark == "<" or target in SYSTEM[area]:
                if target not in SYSTEM[area]:
                    wrong.append(f"{name}: may not include <{target}>")
                continue
            if target == "fivegates.h":
                continue
            if target in own["src"]:
                other = module_of(pathlib.Path(target).stem)
                if area == "src" and other is not None and other != stem \
                        and LEVEL[other] >= LEVEL[stem]:
                    wrong.append(
                        f"{name}: {target} (level {LEVEL[other]}) is not "
                        f"below level {LEVEL[stem]}")
            elif not (area == "card" and target in own["card"]):
                wrong.append(f"{name}: may not include \"{target}\"")
    for line in wrong:
        print(line)
    if not wrong:
        print(f"{len(files)} files")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
