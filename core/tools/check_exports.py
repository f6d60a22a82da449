"""The shared library exports exactly the symbols of tests/abi/symbols.txt."""

import pathlib
import subprocess
import sys


def main() -> int:
    library, golden = sys.argv[1:3]
    out = subprocess.run(
        ["nm", "-D", "--defined-only", library],
        check=True, capture_output=True, text=True,
    ).stdout
    exported = {line.split()[-1].split("@")[0] for line in out.splitlines()}
    lines = pathlib.Path(golden).read_text(encoding="utf-8").splitlines()
    wanted = {line.strip() for line in lines
              if line.strip() and not line.startswith("#")}
    for name in sorted(exported - wanted):
        print(f"exported, but not in {golden}: {name}")
    for name in sorted(wanted - exported):
        print(f"in {golden}, but not exported: {name}")
    if exported == wanted:
        print(f"{len(wanted)} symbols")
    return 0 if exported == wanted else 1


if __name__ == "__main__":
    sys.exit(main())
