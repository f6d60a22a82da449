"""An installed library is usable: pkg-config, the header, shared and static.

Installs the given build folder into a temporary one and compiles programs
against nothing but what was installed: one of three lines, and the one that
core/README.md shows.
"""

import os
import pathlib
import subprocess
import sys
import tempfile

README = pathlib.Path(__file__).parents[1] / "README.md"
PROGRAM = """
#include <stdio.h>
#include "fivegates.h"
int main(void) {
  printf("%u\\n", (unsigned)fg_version());
  return 0;
}
"""


def run(*command: str, **env: str) -> str:
    out = subprocess.run(command, env={**os.environ, **env},
                         capture_output=True, text=True)
    if out.returncode:
        raise SystemExit(f"{' '.join(command)}\n{out.stdout}{out.stderr}")
    return out.stdout


def example() -> str:
    """The C program that core/README.md shows."""
    text = README.read_text(encoding="utf-8")
    return text.split("```c\n", 1)[1].split("```", 1)[0]


def main() -> int:
    build = sys.argv[1]
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        run("meson", "install", "-C", build, "--no-rebuild", "--quiet",
            DESTDIR=folder)
        found = sorted(root.rglob("fivegates.pc"))
        if not found:
            print("no fivegates.pc was installed")
            return 1
        libdir = found[0].parent.parent
        # The sysroot makes pkg-config point into the temporary folder; the
        # other path lets it still find libcjson of the machine.
        usual = run("pkg-config", "--variable=pc_path", "pkg-config").strip()
        env = {"PKG_CONFIG_PATH": str(found[0].parent)}
        prefix = run("pkg-config", "--variable=prefix", "fivegates",
                     **env).strip()
        env["PKG_CONFIG_LIBDIR"] = usual
        env["LD_LIBRARY_PATH"] = str(libdir)
        (root / "a.c").write_text(PROGRAM, encoding="utf-8")
        here = f"--define-variable=prefix={folder}{prefix}"
        for kind in ([], ["--static"]):
            flags = run("pkg-config", here, "--cflags", "--libs", *kind,
                        "fivegates", **env).split()
            if kind:
                flags = [str(libdir / "libfivegates.a")
                         if flag == "-lfivegates" else flag for flag in flags]
            run("cc", str(root / "a.c"), "-o", str(root / "a"), *flags)
            version = run("pkg-config", "--modversion", "fivegates", **env)
            major, minor, patch = (int(n) for n in version.split("."))
            packed = run(str(root / "a"), **env).strip()
            if int(packed) != major << 16 | minor << 8 | patch:
                print(f"fg_version() is {packed}, core/VERSION {version}")
                return 1
            (root / "b.c").write_text(example(), encoding="utf-8")
            run("cc", "-Wall", "-Wextra", "-Werror", str(root / "b.c"), "-o",
                str(root / "b"), *flags)
            if not run(str(root / "b"), **env).startswith("retry, wait "):
                print("the program of core/README.md did not retry")
                return 1
            print(" ".join(kind) or "shared", "ok")
    return 0


if __name__ == "__main__":
    sys.exit(main())
