"""The public header compiles alone as C99, C11 and C++, and as an FFI cdef."""

import shutil
import subprocess
import sys


def main() -> int:
    header = sys.argv[1]
    strict = ["-Wall", "-Wextra", "-pedantic", "-Werror", "-fsyntax-only"]
    tries = [
        ("cc", ["-std=c99", *strict, "-x", "c"]),
        ("cc", ["-std=c11", *strict, "-x", "c"]),
        ("c++", ["-std=c++11", *strict, "-x", "c++"]),
    ]
    failed = 0
    for compiler, args in tries:
        if shutil.which(compiler) is None:
            print(f"{compiler}: not installed, skipped")
            continue
        # Through stdin, so the header is not "the main file" (#pragma once).
        run = subprocess.run(
            [compiler, *args, "-"], text=True, capture_output=True,
            input=f'#include "{header}"\n#include "{header}"\n')
        print(f"{compiler} {args[0]}: {'ok' if run.returncode == 0 else 'FAILED'}")
        if run.returncode:
            print(run.stderr)
            failed += 1
    cdef = subprocess.run(
        ["cc", "-E", "-P", "-DFG_FFI_CDEF", header],
        text=True, capture_output=True)
    bad = [line for line in cdef.stdout.splitlines()
           if "#" in line or "__attribute__" in line or "_Static_assert" in line]
    if cdef.returncode or bad:
        print("as an FFI cdef:", cdef.stderr, *bad[:10], sep="\n")
        failed += 1
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
