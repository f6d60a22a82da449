"""core/SOURCES lists every .c of core/src and core/card, once, sorted."""

import pathlib
import sys


def main() -> int:
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".")
    listed = (root / "core/SOURCES").read_text(encoding="utf-8").splitlines()
    present = sorted(
        path.relative_to(root).as_posix()
        for folder in ("core/src", "core/card")
        for path in (root / folder).glob("*.c")
    )
    wrong = [f"not sorted, or twice: {path}" for before, path
             in zip(listed, listed[1:]) if path <= before]
    wrong += [f"no such file: {path}" for path in listed
              if path not in present]
    wrong += [f"not listed: {path}" for path in present if path not in listed]
    for line in wrong:
        print(f"core/SOURCES: {line}")
    if not wrong:
        print(f"core/SOURCES: {len(listed)} files")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
