"""Print the files that match the given patterns, sorted, one a line.

Meson has no glob; the build asks this instead. Patterns are relative to the
source root (MESON_SOURCE_ROOT when meson calls, else the current folder).
"""

import os
import pathlib
import sys


def main() -> int:
    root = pathlib.Path(os.environ.get("MESON_SOURCE_ROOT", "."))
    found = {
        path.relative_to(root).as_posix()
        for pattern in sys.argv[1:]
        for path in root.glob(pattern)
        if not path.name.startswith(".")
    }
    print("\n".join(sorted(found)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
