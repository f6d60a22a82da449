"""Each source check is seen to fail on a planted fault, and to pass without.

A check that never fails proves nothing. Faults are planted in a small tree of
their own under a temporary folder.
"""

import pathlib
import subprocess
import sys
import tempfile

TOOLS = pathlib.Path(__file__).resolve().parent

SRC_C = '#include "fg_scan.h"\nint fg_scan(int x) {\n  return x + 1;\n}\n'
SRC_H = "int fg_scan(int x);\n"
CARD_C = ('#include "fg_scan.h"\n#include <math.h>\n'
          "long long fg_card_number(double v);\n"
          "long long fg_card_number(double v) {\n"
          "  return llround(v * 1e9) + fg_scan(1);\n}\n")
GOOD = {
    "core/SOURCES": "core/card/fg_card.c\ncore/src/fg_scan.c\n",
    "core/src/fg_scan.c": SRC_C,
    "core/src/fg_scan.h": SRC_H,
    "core/card/fg_card.c": CARD_C,
}
# (check, file, its planted text or None to remove it)
PLANTED = [
    ("sources", "core/SOURCES", "core/src/fg_scan.c\ncore/card/fg_card.c\n"),
    ("sources", "core/SOURCES", "core/src/fg_scan.c\n"),
    ("sources", "core/src/fg_scan.c", None),
    ("includes", "core/src/fg_scan.c", "#include <stdlib.h>\n" + SRC_C),
    ("includes", "core/src/fg_scan.c", '#include "fg_call.h"\n' + SRC_C),
    ("includes", "core/src/fg_scan.c", '#include "../card/fg_card.h"\n'),
    ("includes", "core/src/fg_unheard_of.c", SRC_C),
    ("includes", "core/card/fg_card.c", "#include <stdio.h>\n" + CARD_C),
    ("floats", "core/src/fg_scan.c", SRC_C + "static float f;\n"),
    ("floats", "core/src/fg_scan.c", SRC_C.replace("+ 1", "+ (int)1.5")),
    ("floats", "core/src/fg_scan.c", SRC_C.replace("+ 1", "+ (int)1e3")),
    ("floats", "core/card/fg_card.c",
     CARD_C + "long g(double x);\nlong g(double x) {\n  return (long)x;\n}\n"),
    ("symbols src", "core/src/fg_scan.c", SRC_C + "int counter;\n"),
    ("symbols src", "core/src/fg_scan.c",
     SRC_C + "static int n = 1;\nint next(void);\nint next(void) {\n"
             "  return n++;\n}\n"),
    ("symbols src", "core/src/fg_scan.c",
     SRC_C + "long time(long *);\nlong now(void);\nlong now(void) {\n"
             "  return time(0);\n}\n"),
    ("symbols src", "core/src/fg_scan.c",
     SRC_C + "int fg_card_x(void);\nint y(void);\nint y(void) {\n"
             "  return fg_card_x();\n}\n"),
    ("symbols card", "core/card/fg_card.c",
     CARD_C + "int puts(const char *);\nint p(void);\nint p(void) {\n"
              '  return puts("");\n}\n'),
    ("symbols card", "core/card/fg_card.c",
     CARD_C + "void cJSON_InitHooks(void *);\nvoid h(void);\nvoid h(void) {\n"
              "  cJSON_InitHooks(0);\n}\n"),
]
# A comment, a literal and a constant table are no faults.
HARMLESS = [
    ("floats", "core/src/fg_scan.c",
     "/* a double, 1.5 */ // float\n" + SRC_C + 'const char *s = "0.5";\n'),
    ("symbols src", "core/src/fg_scan.c",
     SRC_C + "const char *const words[] = {\"a\", \"b\"};\n"),
]


def passes(check: str, root: pathlib.Path) -> bool:
    name, _, area = check.partition(" ")
    args = [str(root)]
    if name == "symbols":
        objects = []
        for path in sorted((root / "core" / area).glob("*.c")):
            objects.append(str(root / (path.stem + ".o")))
            subprocess.run(
                ["cc", "-O2", "-fPIC", "-w", "-I", str(root / "core/src"),
                 "-c", str(path), "-o", objects[-1]], check=True)
        archive = root / "lib.a"
        archive.unlink(missing_ok=True)
        subprocess.run(["ar", "rcs", str(archive), *objects], check=True)
        args = [area, str(archive)]
    run = subprocess.run(
        [sys.executable, str(TOOLS / f"check_{name}.py"), *args],
        capture_output=True, text=True)
    # A crash of the check is not a finding.
    if run.returncode not in (0, 1) or "Traceback" in run.stderr:
        raise RuntimeError(run.stderr)
    return run.returncode == 0


def tried(check: str, name: str, text: "str | None") -> bool:
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        files = dict(GOOD)
        if text is None:
            del files[name]
        else:
            files[name] = text
        for path, content in files.items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(content, encoding="utf-8")
        return passes(check, root)


def main() -> int:
    wrong = 0
    for check in ("sources", "includes", "floats", "symbols src",
                  "symbols card"):
        if not tried(check, "core/VERSION", "0\n"):
            print(f"{check}: fails on a tree without a fault")
            wrong += 1
    for check, name, text in PLANTED:
        if tried(check, name, text):
            print(f"{check}: does not see the fault in {name}:\n{text}")
            wrong += 1
    for check, name, text in HARMLESS:
        if not tried(check, name, text):
            print(f"{check}: sees a fault where none is, in {name}:\n{text}")
            wrong += 1
    if not wrong:
        print(f"{len(PLANTED)} planted faults seen")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
