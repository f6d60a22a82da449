#!/usr/bin/env python3
"""A world that cannot fail proves nothing: each planted bug must be found.

Builds the core once, then plants one bug at a time (one or more edits), builds
what it changes and expects the world to see a violation.
Usage: planted.py [SOURCE_ROOT]
"""

import os
import pathlib
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

COMMIT, CONTRACT, BUDGET = "core/src/fg_gate_commit.c", "core/src/fg_gate_contract.c", "core/src/fg_gate_budget.c"
SECTIONS, VERDICT, FIT = "core/card/fg_card_sections.c", "core/card/fg_card_contracts.c", "core/src/fg_contract.c"
STATED = "if (requires->value[key] == NULL || "
WORLDS = ("world_a", "world_b", "world_sections")

# world, its arguments, what it breaks, [(file, what stands there, what is planted)]
BUGS = [
    ("world_a", "6", "a committed effect is replayed", [(COMMIT, "if (f->effect == FG_EFFECT_COMMITTED) {", "if (0) {")]),
    ("world_a", "6", "an unknown effect is replayed", [(COMMIT, "if (f->effect == FG_EFFECT_UNKNOWN) {", "if (0) {")]),
    ("world_a", "6", "visible text is sent again", [(COMMIT, "if (f->shown == FG_SHOWN_VISIBLE) {", "if (0) {")]),
    ("world_a", "6", "an unapproved route is used", [(CONTRACT, "if (c->barred != FG_REASON_NONE) {", "if (0) {")]),
    ("world_a", "8", "attempts are not bounded", [(BUDGET, "if (f->attempts_left == 0) {", "if (0) {")]),
    ("world_a", "6", "a tool acts between the decision and the send", [
        ("core/src/fg_call_attempt.c", "    why = commit.reason;", "    ;")]),
    # What the states seen rest on: nothing but the state decides.
    ("world_a", "6", "an answer depends on more than the state", [
        (BUDGET, "if (f->attempts_left == 0) {", "static int asked;\n  if (f->attempts_left == 0 || ++asked % 997 == 0) {")]),
    # Three places keep a server's wait, so that one mistake does not break it.
    ("world_a", "6", "a server's wait is cut short", [
        ("core/src/fg_backoff.c", "return fg_add32(hint_ms, ", "return fg_add32(hint_ms / 2, "),
        ("core/src/fg_call_failed.c", "fg_health_told_to_wait(&ask, f->scope, f->retry_after_ms, t);", ";"),
        ("core/src/fg_health.c", "fg_health_told_to_wait(ask, o->scope, o->hint_ms, t);", ";"),
    ]),
    # A check of the eight that is skipped, for each section: what the card says, then what the request needs.
    *[("world_sections", "3", f"section {section} is not compared", [
        (SECTIONS, STATED, f'{STATED}strcmp(KEYS[key].section, "{section}") == 0 || ')])
      for section in ("input", "output", "tools", "safety", "data", "operations", "economics")],
    ("world_sections", "3", "section quality is not compared", [
        (VERDICT, 'return k->score_ppm < extra->min_score_ppm ? "quality.min_score_ppm" : NULL;', "return NULL;")]),
    ("world_sections", "3", "a request too large for the context", [(FIT, "int too_long = l->context_tokens != 0 ? need > l->context_tokens", "int too_long = l->context_tokens != 0 ? 0")]),
    ("world_sections", "3", "a request of known size, an unknown context", [(FIT, ": !primary && need > 0;", ": 0;")]),
    ("world_sections", "3", "an answer too long", [(FIT, "r->max_output_tokens > l->max_tokens : ", "0 : ")]),
    ("world_sections", "3", "tools it may not be given", [(FIT, "return missing ? FG_REASON_DOES_NOT_FIT_TOOLS : 0;", "return 0;")]),
    ("world_sections", "3", "unknown features are taken for known", [(FIT, ": ~(l->known & l->features);", ": l->known & ~l->features;")]),
    ("world_sections", "3", "a class of data it may not see", [(FIT, "if (!(route->data_classes & bit)) {", "if (0) {")]),
    ("world_sections", "3", "a region outside the request's", [(FIT, "if (route->regions == 0 || route->regions & ~bit) {", "if (0) {")]),
    ("world_sections", "3", "a price nobody approved", [(VERDICT, "return fg_card_price_changed(&k->price, r, &was, &now) == NULL ? 1 : ", "return 1 ? 1 : ")]),
    ("world_sections", "3", "evidence never expires", [(FIT, "return unix_ms >= s->expires_unix_ms ? ", "return 0 ? ")]),
    ("world_sections", "3", "evidence from the future", [(FIT, " || unix_ms < s->measured_unix_ms", "")]),
    ("world_sections", "3", "a smaller model is not asked for its contract", [
        ("core/src/fg_weigh.c", "stand_in_forbidden(w, r->route_index, f->stage == FG_STAGE_FAILURE) != FG_REASON_NONE", "0")]),
    ("world_sections", "3", "a retry past the date of the approval", [
        ("core/src/fg_decide.c", "if (c->barred != FG_REASON_NONE) {", "if (0) {")]),
    ("world_sections", "3", "an edited request past the date of the approval", [
        ("core/src/fg_facts.c", "barred = barred_now(e, s, base_place, t) != FG_REASON_NONE", "barred = s->barred[base_place] != 0")]),
    ("world_sections", "3", "an edited request decided before that date and sent after it", [
        ("core/src/fg_call_attempt.c", "c.barred = r->helps ? FG_REASON_NONE : c.barred;", "c.barred = FG_REASON_NONE;")]),
    ("world_b", "8 1", "retries are not paid for", [
        ("core/src/fg_call.c", "if (!fg_bucket_pay(&failed.route->retry, &e->bucket, price - s->paid_milli, t)) {", "if (0) {")]),
    ("world_b", "9", "more than one probe", [("core/src/fg_breaker.c", "limit7(c->probes)", "7")]),
    ("world_b", "7", "a gauge is leaked", [
        ("core/src/fg_witness.c", "(up ? fg_gauge_add : fg_gauge_sub)(&a->gauge[slot], g);", "if (up) {\n      fg_gauge_add(&a->gauge[slot], g);\n    }")]),
]


class Tree:
    def __init__(self, root: pathlib.Path, work: pathlib.Path) -> None:
        self.root, self.work = root, work
        self.cc = [os.environ.get("CC", "cc"), "-std=c11", "-D_GNU_SOURCE", "-O1", "-w"]
        self.cc += [f"-I{root / sub}" for sub in ("core/include", "core/card", "core/src")]
        out = subprocess.run(["pkg-config", "--cflags", "--libs", "libcjson"], capture_output=True, text=True, check=True)
        self.libs = [*out.stdout.split(), "-lm"]
        files = (root / "core/SOURCES").read_text().split() + [f"tests/worlds/{w}.c" for w in WORLDS]
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            made = pool.map(lambda file: self.compile(root / file, file), files)
            self.objects = dict(zip(files, made))

    def compile(self, source: pathlib.Path, name: str) -> pathlib.Path:
        out = self.work / (name.replace("/", "_") + ".o")
        subprocess.run([*self.cc, f"-I{(self.root / name).parent}", "-c", str(source), "-o", str(out)], check=True)
        return out

    def run(self, world: str, args: str, edits: list[tuple[str, str, str]]) -> bool | str:
        """True when the world saw a violation; a text when the bug could not be planted."""
        objects = dict(self.objects)
        here = pathlib.Path(tempfile.mkdtemp(dir=self.work))
        for file, old, new in edits:
            text = (self.root / file).read_text()
            if old not in text:
                return f"{file} no longer has {old!r}"
            changed = here / pathlib.Path(file).name
            changed.write_text(text.replace(old, new))
            out = changed.with_suffix(".o")
            subprocess.run([*self.cc, "-c", str(changed), "-o", str(out)], check=True)
            objects[file] = out
        link = [str(o) for f, o in objects.items() if not f.startswith("tests/") or f.endswith(f"{world}.c")]
        exe = here / world
        subprocess.run([*self.cc, *link, *self.libs, "-o", str(exe)], check=True)
        return subprocess.run([exe, *args.split()], capture_output=True, timeout=600, check=False).returncode != 0


def main() -> int:
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".").resolve()
    failed = 0
    with tempfile.TemporaryDirectory() as tmp:
        tree = Tree(root, pathlib.Path(tmp))
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            seen = pool.map(lambda bug: tree.run(bug[0], bug[1], bug[3]), BUGS)
        for (world, _, what, _), found in zip(BUGS, seen):
            failed += found is not True
            print(f"{'found' if found is True else 'MISSED'}: {what} ({world}){'' if isinstance(found, bool) else ': ' + found}", flush=True)
    print(f"{len(BUGS) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
