"""No floating point in core/src; one function with a double in core/card.

Integer arithmetic keeps C, Python and Lua, and any two compilers, equal to
the byte. The exception turns a JSON number into a scaled integer.
"""

import pathlib
import re
import sys

from c_text import functions, strip_comments

WORD = re.compile(r"\b(?:float|double|valuedouble|_Float\w+|long\s+double)\b")
LITERAL = re.compile(
    r"(?<![\w.])(?:\d+\.\d*|\.\d+|\d+(?=[eE][+-]?\d))(?:[eE][+-]?\d+)?[fFlL]?")
CARD_FUNCTIONS = 1


def has_float(text: str) -> bool:
    return bool(WORD.search(text) or LITERAL.search(text))


def main() -> int:
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".")
    wrong = 0
    seen = []
    for path in sorted((root / "core").glob("*/*.[ch]")):
        area = path.parent.name
        if area not in ("src", "card", "include"):
            continue
        text = strip_comments(path.read_text(encoding="utf-8"))
        name = path.relative_to(root).as_posix()
        if area == "card":
            inside = functions(text)
            for line, head, body in inside:
                if has_float(head) or has_float(body):
                    seen.append(f"{name}:{line}")
            rest = text
            for _, head, body in inside:
                rest = rest.replace(head, "").replace(body, "")
            for line in rest.splitlines():
                # A prototype of that function may name its type.
                if has_float(line) and not line.rstrip().endswith(";"):
                    print(f"{name}: {line.strip()}")
                    wrong += 1
            continue
        for number, line in enumerate(text.splitlines(), 1):
            if line.lstrip().startswith("#include"):
                continue
            if has_float(line):
                print(f"{name}:{number}: {line.strip()}")
                wrong += 1
    if len(seen) > CARD_FUNCTIONS:
        print(f"core/card: {len(seen)} functions with floating point, "
              f"{CARD_FUNCTIONS} allowed:", *seen, sep="\n  ")
        wrong += 1
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
