"""Purity, proved from the objects: what core/src and core/card may need.

core/src: memory copies and compiler helpers; no writable data at all.
core/card: in addition cJSON's tree functions and a few pure libc ones.
Run on the objects of a plain build: sanitizers add symbols of their own.
"""

import re
import subprocess
import sys

# The compiler emits these by itself, or for the atomics.
COMPILER = re.compile(
    r"_GLOBAL_OFFSET_TABLE_|__stack_chk_fail|__aarch64_(?:cas|swp|ld\w+)\d+_\w+"
    r"|__(?:mem(?:cpy|move|set)|memset)_chk")
SRC = {"memcpy", "memmove", "memset", "memcmp"}
CARD = SRC | {
    # Pure functions of their arguments: no state, no locale, no allocation.
    "llround",  # JSON number -> scaled integer
    "strlen", "strcmp", "strncmp", "strchr", "memchr",  # text that cJSON owns
}
# cJSON_InitHooks is process-wide and stays untouched; cJSON_GetErrorPtr reads
# a global that another thread may be writing.
CARD_CJSON = re.compile(r"cJSON_(?!InitHooks$|GetErrorPtr$)\w+")


def nm(*args: str) -> "list[tuple[str, str, str]]":
    """(object, type, symbol) of each line of nm -A."""
    out = subprocess.run(
        ["nm", "-A", *args], check=True, capture_output=True, text=True).stdout
    rows = []
    for line in out.splitlines():
        where, _, rest = line.rpartition(":")
        words = rest.split()
        rows.append((where.split(":")[-1].split("/")[-1], words[-2], words[-1]))
    return rows


def sections(archive: str) -> "list[tuple[str, str, int]]":
    """(object, section, size) of each allocated writable section."""
    out = subprocess.run(
        ["size", "-A", archive], check=True, capture_output=True, text=True).stdout
    rows = []
    name = ""
    for line in out.splitlines():
        words = line.split()
        if "(ex " in line or line.rstrip().endswith(":"):
            name = words[0].split("/")[-1]
        elif len(words) == 3 and re.match(r"\.(data|bss|tdata|tbss)\b", words[0]):
            # .data.rel.ro is constant after relocation: tables of pointers.
            if not words[0].startswith(".data.rel.ro"):
                rows.append((name, words[0], int(words[1])))
    return rows


def main() -> int:
    area, archive = sys.argv[1:3]
    symbols = nm(archive)
    own = {symbol for _, kind, symbol in symbols if kind not in "Uw"}
    wrong = 0
    for where, kind, symbol in symbols:
        if kind not in "Uw" or symbol in own or COMPILER.fullmatch(symbol):
            continue
        if area == "src" and symbol in SRC:
            continue
        # core/card stands on core/src, never the other way round.
        if area == "card" and (symbol in CARD or symbol.startswith("fg_")
                               or CARD_CJSON.fullmatch(symbol)):
            continue
        print(f"{where}: may not need {symbol}")
        wrong += 1
    if area == "src":
        for where, section, size in sections(archive):
            if size:
                print(f"{where}: {section} has {size} bytes of writable data")
                wrong += 1
    if not wrong:
        print(f"core/{area}: {len(own)} symbols defined, nothing impure needed")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
