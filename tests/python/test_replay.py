"""A ledger decided again by its own card: the same bytes, or told where not."""

from __future__ import annotations

import json
import pathlib

import pytest

from fivegates.drill.runs import fault_names
from fivegates.replay import ReplayError, check, survey
from fivegates.replay.check import Checked
from fivegates.replay.lines import in_order, read

from .replay_rig import Program, card, drill, policy_of


def checked(path: "str | pathlib.Path", spec: "dict[str, object] | None" = None) -> Checked:
    policy = policy_of(spec or card())
    return check(survey([str(path)]), {policy.fingerprint: policy})


def test_every_fault_of_the_drill_is_replayed_to_the_byte(
        tmp_path: pathlib.Path) -> None:
    calls = decisions = 0
    kinds = set()
    for fault in fault_names():
        longer = {"phases": {"warm_s": 10, "fault_s": 410, "after_s": 30}}
        path = drill(tmp_path / f"{fault}.jsonl", fault, card(),
                     **(longer if fault == "both" else {}))
        seen = survey([path])
        policy = policy_of(card())
        found = check(seen, {policy.fingerprint: policy})
        assert not seen.broken and not seen.torn and not seen.strays
        assert found.exact, (fault, found.differences[:1])
        calls += len(seen.calls)
        decisions += found.decisions
        kinds |= {(one.end or {}).get("failure", {}).get("kind")
                  for call in seen.calls for one in call.attempts}
    assert calls > 10_000 and decisions > 3 * calls
    assert {"server_error", "rate_limited"} <= kinds


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_programs_ledger_needs_no_event_lines(seed: int, tmp_path: pathlib.Path,
                                                ) -> None:
    """Its own lines say what was told and when; only how streams flowed
    between two lines is guessed, which hardly a decision shows."""
    path = tmp_path / "ledger.jsonl"
    Program(path, seed)
    seen = survey([str(path)])
    found = checked(path)
    assert not seen.broken
    after = {line["after"] for line in map(json.loads, path.read_text().splitlines())
             if line["line"] == "decision"}
    assert after == {"begin", "begin_attempt", "failure", "success", "deadline",
                     "unable", "step", "cancel"}
    assert found.not_followed == 0
    assert found.others_equal == found.others
    assert found.decisions - found.equal <= found.decisions // 500
    assert all(set(one.members) <= {"timeouts", "wake_ms", "wait_ms"}
               for one in found.differences)


def test_a_changed_line_is_found_with_its_place(tmp_path: pathlib.Path) -> None:
    path = pathlib.Path(drill(tmp_path / "l.jsonl", "blackout", card()))
    lines = path.read_text().splitlines()
    at = next(i for i, line in enumerate(lines) if '"action":"fallback"' in line)
    lines[at] = lines[at].replace('"attempts_left":3', '"attempts_left":2')
    path.write_text("\n".join(lines) + "\n")
    found = checked(path)
    assert not found.exact and found.equal == found.decisions - 1
    (difference,) = found.differences
    assert difference.place == f"{path}:{at + 1}"
    assert difference.members == {"attempts_left": (2, 3)}


def test_what_calls_share_is_replayed_too(tmp_path: pathlib.Path) -> None:
    """Without the failures of others a breaker does not open."""
    path = pathlib.Path(drill(tmp_path / "l.jsonl", "blackout", card()))
    lines = path.read_text().splitlines()
    failed = {json.loads(line)["call"] for line in lines
              if '"after":"failure"' in line}
    kept = [line for line in lines if json.loads(line)["call"] not in failed]
    path.write_text("\n".join(kept) + "\n")
    found = checked(path)
    assert not found.exact
    # a primary that is open, or full of those that were silent
    assert any("breaker" in one.members or "reason" in one.members
               for one in found.differences)


def test_two_cards_on_one_region(tmp_path: pathlib.Path) -> None:
    """A card was reloaded: both are needed, and the place says which."""
    new = card(retry_bucket={"cap": 5})
    path = tmp_path / "l.jsonl"
    Program(path, calls=40)
    first = path.read_text()
    other = tmp_path / "m.jsonl"
    Program(other, calls=5, spec=new)
    path.write_text(first + other.read_text())
    seen = survey([str(path)])
    assert len(seen.policies) == 2
    old, changed = policy_of(card()), policy_of(new)
    place = f"{path}:{first.count(chr(10)) + 1}"
    with pytest.raises(ReplayError, match="--old") as caught:
        check(seen, {old.fingerprint: old})
    assert str(caught.value).startswith(place)
    found = check(seen, {old.fingerprint: old, changed.fingerprint: changed})
    assert found.decisions == seen.decisions


def test_rotated_files_are_one_ledger(tmp_path: pathlib.Path) -> None:
    whole = pathlib.Path(drill(tmp_path / "l.jsonl", "errors", card()))
    lines = whole.read_text().splitlines(keepends=True)
    parts = []
    for i in range(3):
        part = tmp_path / f"part{i}.jsonl"
        part.write_text("".join(lines[i * len(lines) // 3:(i + 1) * len(lines) // 3]))
        parts.append(str(part))
    policy = policy_of(card())
    seen = survey(parts)
    assert check(seen, {policy.fingerprint: policy}).exact
    late = survey(parts[1:])
    assert late.strays and late.stray_places[0].startswith(parts[1] + ":")
    assert not check(late, {policy.fingerprint: policy}).exact


def test_lines_may_be_written_out_of_order(tmp_path: pathlib.Path) -> None:
    """As threads write them: what they tell of has its own time. Only what
    was done in one millisecond has no order then."""
    path = tmp_path / "l.jsonl"
    Program(path, seed=3)

    def told() -> "list[tuple[str, bool]]":
        return [(line.raw, written) for line, written in in_order(read([str(path)]))]

    before = told()
    late: "list[tuple[int, str]]" = []
    out: "list[str]" = []
    lines = path.read_text().splitlines()
    for line in lines:  # every seventh call is written two seconds late
        facts = json.loads(line)
        out += [one for at, one in late if at < facts["now_ms"] - 2000]
        late = [(at, one) for at, one in late if at >= facts["now_ms"] - 2000]
        if sum(facts["call"].encode()) % 7 == 0:
            late.append((facts["now_ms"], line))
        else:
            out.append(line)
    out += [one for _, one in late]
    path.write_text("\n".join(out) + "\n")
    moved = sum(one != other for one, other in zip(lines, out))
    after = told()
    assert sorted(before) == sorted(after)
    assert moved > 500
    assert sum(one != other for one, other in zip(before, after)) < 40
    assert checked(path).not_followed == 0
