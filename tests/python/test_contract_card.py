"""A card file changed in place: what was wanted, and nothing else."""

from __future__ import annotations

import fcntl
import json
import os
import pathlib
import re
import stat
import tempfile
import typing

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from fivegates.contract.cards import CardFile, ContractError
from fivegates.errors import PolicyError
from fivegates.yaml import to_json

Json = typing.Dict[str, typing.Any]
EVIDENCE = {"fixtures": "sha256:" + "1" * 64, "cases": 12, "passed": 11,
            "score_ppm": 980000, "primary_score_ppm": 990000,
            "measured_at": "2026-11-30T12:00:00Z",
            "expires_at": "2027-02-28T12:00:00Z"}
MODEL = {"provider": "openai", "model": "gpt-4o-mini"}
MEASURED = {"cases": 3, "primary": MODEL, "route": {**MODEL, "version": "2024-07-18"}}
PLAIN = """\
# Our card.
version: 1

routes:
    main:   {provider: openai, model: gpt-4o}   # the primary
    spare:
        provider: "anthropic"   # double quotes
        model: 'claude'
        # nothing provided yet

workflows:
    answer:
        routes: [ main, spare ]
# the end
"""


def opened(folder: pathlib.Path, text: str, name: str = "card.yaml") -> CardFile:
    path = folder / name
    path.write_bytes(text.encode())
    return CardFile.open(path)


def test_a_plain_card(tmp_path: pathlib.Path) -> None:
    card = opened(tmp_path, PLAIN)
    assert card.contract("answer", "spare") is None and not card.changed
    card.put_contract("answer", "spare", {"approved_by": "me"})
    card.put_provides("spare", "input", "context_tokens", 200000)
    card.put_provides("main", "output", "max_tokens", 4096)
    card.put_price("spare", {"input": 3, "output": 15.5})
    card.put_contract("answer", "spare", {"evidence": EVIDENCE})
    card.save()
    assert (tmp_path / "card.yaml").read_text() == PLAIN.replace(
        "gpt-4o}", "gpt-4o, provides: {output: {max_tokens: 4096}}}").replace(
        "'claude'\n", """'claude'
        provides:
            input: {context_tokens: 200000}
        price: {input: 3, output: 15.5}
""").replace("spare ]\n", f"""spare ]
contracts:
    - workflow: answer
      route: spare
      approved_by: me
      evidence:
          fixtures: sha256:{"1" * 64}
          cases: 12
          passed: 11
          score_ppm: 980000
          primary_score_ppm: 990000
          measured_at: "2026-11-30T12:00:00Z"
          expires_at: "2027-02-28T12:00:00Z"
""")
    card.put_contract("answer", "spare", {"evidence": {**EVIDENCE, "cases": 20},
                                          "approved_by": None})
    card.save()
    text = (tmp_path / "card.yaml").read_text()
    assert "cases: 20" in text and "approved_by" not in text
    assert os.listdir(tmp_path) == ["card.yaml"]


def test_new_evidence_is_no_approval(tmp_path: pathlib.Path) -> None:
    """What was approved for another card goes with its evidence; what still
    holds stays."""
    card = opened(tmp_path, PLAIN)
    now = card.policy.contract("answer", "spare")["fingerprint"]
    for fingerprint, stays in ((now, True), ("sha256:" + "0" * 64, False)):
        card.put_contract("answer", "spare", {"fingerprint": fingerprint,
                                              "approved_by": "me"})
        card.put_contract("answer", "spare", {"evidence": EVIDENCE})
        contract = card.contract("answer", "spare")
        assert contract is not None and contract["evidence"] == EVIDENCE
        assert ("fingerprint" in contract) == ("approved_by" in contract) == stays


def test_comments_beside_what_changes(tmp_path: pathlib.Path) -> None:
    text = PLAIN.replace("        # nothing provided yet\n", """\
        provides:  {}  # what?
        price: free  # for now
""") + """\
contracts:
  -   fingerprint: sha256:0  # old
      workflow: answer  # ours
      # the route
      route: spare
"""
    card = opened(tmp_path, text)
    card.put_provides("spare", "input", "context_tokens", 1)
    card.put_price("spare", {"input": 1, "output": 2})
    card.put_contract("answer", "spare", {"fingerprint": None})
    assert card.text == text.replace("provides:  {}  # what?", """\
provides: # what?
            input: {context_tokens: 1}""").replace(
        "free  #", "{input: 1, output: 2}  #").replace("""\
fingerprint: sha256:0  # old
      workflow: answer  # ours
""", "workflow: answer  # ours\n")
    card = opened(tmp_path, PLAIN + "contracts: []  # none")
    card.put_contract("answer", "spare", {})
    assert card.text == PLAIN + ("contracts: # none\n    - workflow: answer\n"
                                 "      route: spare")


def test_a_layout_that_cannot_be_changed(tmp_path: pathlib.Path) -> None:
    """The blank lines below belong to the text: nothing may come before them."""
    text = PLAIN + "        ladder:\n          - step: preset\n            text: |+\n" + (
        "              Sorry.\n\n\n")
    plain = text.replace("|+", "|").replace("\n\n\n", "\n").replace("# the end\n", "")
    card = opened(tmp_path, plain)
    card.put_contract("answer", "spare", {})
    assert card.text == plain + (
        "contracts:\n    - workflow: answer\n      route: spare\n")
    card = opened(tmp_path, text.replace("# the end\n", ""))
    with pytest.raises(ContractError, match="cannot be changed in this layout"):
        card.put_contract("answer", "spare", {"approved_by": "me"})
    assert not card.changed
    with pytest.raises(PolicyError, match="did you mean"):
        card.put_provides("spare", "input", "contxt_tokens", 1)
    assert not card.changed


def test_a_file_of_another_hand(tmp_path: pathlib.Path) -> None:
    """Saved in one step, under a link too, with its mode; never over a change."""
    path = tmp_path / "card.yaml"
    card = opened(tmp_path, "\ufeff" + PLAIN)
    path.chmod(0o640)
    (tmp_path / "link.yaml").symlink_to("card.yaml")
    linked = CardFile.open(tmp_path / "link.yaml")
    linked.put_price("spare", "free")
    linked.save()
    assert (tmp_path / "link.yaml").is_symlink()
    assert path.read_bytes().startswith(b"\xef\xbb\xbf#")
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    card.put_contract("answer", "spare", {})
    with pytest.raises(ContractError, match="changed meanwhile"):
        card.save()
    with open(path, "rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(ContractError, match="another program"):
            card.save()
    assert path.read_bytes() == b"\xef\xbb\xbf" + linked.text.encode()
    assert sorted(os.listdir(tmp_path)) == ["card.yaml", "link.yaml"]

SMALL = {"version": 1, "routes": {"a": {"provider": "p", "model": "m"}},
         "workflows": {"w": {"routes": ["a"], "hold_ms": 0}}}


def test_what_is_written_is_said_to_be(tmp_path: pathlib.Path,
                                       monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a folder cannot be waited for, and where a link or the directory turned."""
    opened(tmp_path, PLAIN)
    (tmp_path / "other.yaml").write_text(PLAIN)
    (tmp_path / "link.yaml").symlink_to("card.yaml")
    monkeypatch.chdir(tmp_path)
    card = CardFile.open("link.yaml")
    card.put_price("spare", "free")
    (tmp_path / "link.yaml").unlink()
    (tmp_path / "link.yaml").symlink_to("other.yaml")
    monkeypatch.chdir("/")
    real = os.fsync

    def fsync(file: int) -> None:
        if stat.S_ISDIR(os.fstat(file).st_mode):
            raise OSError(22, "Invalid argument")
        real(file)

    monkeypatch.setattr(os, "fsync", fsync)
    card.save()
    assert (tmp_path / "card.yaml").read_text() == card.text
    assert (tmp_path / "other.yaml").read_text() == PLAIN
    assert sorted(os.listdir(tmp_path)) == ["card.yaml", "link.yaml", "other.yaml"]


@pytest.mark.parametrize("text", [
    "\ufeff\ufeff" + json.dumps(SMALL), json.dumps(SMALL).replace(
        '"hold_ms": 0', '"hold_ms": 0e9999999999999999999999')])
def test_a_card_that_only_the_engine_reads(tmp_path: pathlib.Path, text: str) -> None:
    (tmp_path / "card.json").write_text(text)
    with pytest.raises(ContractError, match="card.json: the engine reads this card"):
        CardFile.open(tmp_path / "card.json")


# ---- any card, however it is laid out


class Writer:
    """Writes a card as YAML in a layout that is drawn: blocks and brackets,
    quotes, indents, comments (each its own), blank lines."""

    def __init__(self, draw: typing.Any) -> None:
        self.draw = draw
        self.comments = 0
        self.unit = draw(st.integers(1, 4))

    def one_of(self, *choices: typing.Any) -> typing.Any:
        return self.draw(st.sampled_from(choices))

    def comment(self) -> str:
        if self.one_of(True, True, False):
            return ""
        self.comments += 1
        return f"  # c{self.comments}."

    def scalar(self, value: object) -> str:
        if not isinstance(value, str):
            return json.dumps(value)
        if re.match(r"[a-z]\w*\Z", value):
            return str(self.one_of(value, f"'{value}'", json.dumps(value)))
        return json.dumps(value)

    def inline(self, value: typing.Any, column: int) -> str:
        """Between brackets, on one line or several."""
        if not isinstance(value, (dict, list)):
            return self.scalar(value)
        parts = ([f"{self.scalar(key)}: {self.inline(one, column + self.unit)}"
                  for key, one in value.items()] if isinstance(value, dict)
                 else [self.inline(one, column + self.unit) for one in value])
        left, right = "{}" if isinstance(value, dict) else "[]"
        if not parts or self.one_of(True, True, False):
            pad = self.one_of("", " ")
            return left + pad + self.one_of(", ", " ,  ").join(parts) + pad + right
        space = "\n" + " " * (column + self.unit)
        rows = "".join(f"{space}{part}{',' if i + 1 < len(parts) else self.one_of('', ',')}"
                       f"{self.comment()}" for i, part in enumerate(parts))
        return left + rows + self.one_of("\n" + " " * (column + 1), "\n" + " " * (
            column + self.unit) if self.unit else "") + right

    def block(self, value: typing.Any, column: int) -> "list[str]":
        out: "list[str]" = []
        rows = (value.items() if isinstance(value, dict)
                else [("-", one) for one in value])
        for key, one in rows:
            if self.one_of(True, False, False, False):
                out += self.one_of([""], [" " * column + self.comment().strip()])
            dash = key == "-"
            head = " " * column + ("- " if dash else self.scalar(key) + ":" + self.one_of(" ", "  "))
            if isinstance(one, (dict, list)) and one and self.one_of(True, True, False):
                inner = column + (2 if dash else self.unit)
                lines = self.block(one, inner)
                if dash and lines[0].strip() and not lines[0].lstrip().startswith("#"):
                    out += [head + lines[0].lstrip(), *lines[1:]]
                else:
                    out += [head.rstrip() + self.comment(), *lines]
            else:
                out.append(head + self.inline(one, column) + self.comment())
        return out

    def whole(self, value: Json) -> str:
        text = "\n".join(self.block(value, 0))
        return text + self.one_of("\n", "", "\n\n", "\n# the end\n")


SECTIONS = st.fixed_dictionaries({}, optional={
    "input": st.fixed_dictionaries({}, optional={
        "context_tokens": st.integers(1, 10**6),
        "modalities": st.just(["text", "image"]), "prefill": st.booleans()}),
    "output": st.fixed_dictionaries({"max_tokens": st.integers(1, 99999)}),
    "data": st.fixed_dictionaries({"regions": st.just(["eu"])})})
PRICE = st.one_of(st.just("free"), st.fixed_dictionaries(
    {"input": st.sampled_from([2, 2.5]), "output": st.just(10)},
    optional={"cached_input": st.just(0.1)}))


@st.composite
def cards(draw: typing.Any) -> "tuple[Json, str, bool]":
    """A card, its text, and whether that is JSON."""
    routes = {name: {"provider": "openai", "model": "m", **draw(st.fixed_dictionaries(
        {}, optional={"provides": SECTIONS, "price": PRICE,
                      "version": st.just("2026-01-01")}))}
              for name in ("main", "spare", "small")}
    card: Json = {"version": 1, "routes": routes, "workflows": {
        "answer": {"routes": ["main", "spare", "small"]},
        "other": {"routes": ["main", "spare"]}}}
    contract = st.fixed_dictionaries({}, optional={
        "fingerprint": st.just("sha256:" + "0" * 64), "approved_by": st.just("me you"),
        "evidence": st.sampled_from([EVIDENCE, {"cases": 3}, MEASURED])})
    listed = draw(st.lists(st.sampled_from(["answer", "other"]), unique=True))
    if draw(st.booleans()):
        made = [{**draw(contract), "workflow": one, "route": "spare"} for one in listed]
        card["contracts"] = [dict(draw(st.permutations(sorted(one.items()))))
                             for one in made]
    if draw(st.booleans()):
        return card, json.dumps(card, indent=draw(st.sampled_from(
            [None, 1, 2, 4, "\t"]))) + "\n", True
    text = Writer(draw).whole(card)
    return card, text.replace("\n", draw(st.sampled_from(["\n", "\n", "\r\n"]))), False


CHANGES = st.one_of(
    st.tuples(st.just("put_provides"), st.sampled_from(["main", "spare"]),
              st.just("input"), st.just("context_tokens"), st.integers(1, 10**6)),
    st.tuples(st.just("put_provides"), st.just("spare"), st.just("data"),
              st.just("regions"), st.just(["eu", "us"])),
    st.tuples(st.just("put_price"), st.just("spare"), PRICE),
    st.tuples(st.just("put_contract"), st.sampled_from(["answer", "other"]),
              st.just("spare"), st.fixed_dictionaries({}, optional={
                  "fingerprint": st.sampled_from([None, "sha256:" + "2" * 64]),
                  "approved_by": st.sampled_from([None, "ops@example.com"]),
                  "evidence": st.sampled_from(
                      [None, EVIDENCE, {"cases": 5}, {**MEASURED, "route": MODEL}])})))


def wanted(card: Json, change: typing.Any) -> "tuple[Json, set[str]]":
    """The card as it is to be, and the keys that are changed."""
    card = json.loads(json.dumps(card))
    act, *args = change
    if act == "put_provides":
        route, section, key, value = args
        card["routes"][route].setdefault("provides", {}).setdefault(section, {})[key] = value
        return card, {key, section, "provides", "eu"}
    if act == "put_price":
        card["routes"][args[0]]["price"] = args[1]
        return card, {"price", *(args[1] if isinstance(args[1], dict) else ()), "free",
                      "input", "output", "cached_input"}
    workflow, route, values = args
    listed = card.setdefault("contracts", [])
    found = [one for one in listed if one["workflow"] == workflow]
    if not found:
        found = [{"workflow": workflow, "route": route}]
        listed.append(found[0])
    if "evidence" in values and "fingerprint" in found[0]:  # that is never the card's
        values = {**values, **{key: values.get(key) for key in (
            "fingerprint", "approved_by")}}
    for key, value in values.items():
        if value is None:
            found[0].pop(key, None)
        else:
            found[0][key] = value
    return card, {*values, *EVIDENCE, "contracts", "workflow", "route", "primary",
                  "provider", "model", "version"}


@settings(max_examples=80, deadline=None, derandomize=True,
          phases=[Phase.explicit, Phase.generate])
@given(cards(), st.lists(CHANGES, min_size=1, max_size=3))
def test_a_change_touches_nothing_else(made: "tuple[Json, str, bool]",
                                       changes: "list[typing.Any]") -> None:
    data, text, is_json = made
    with tempfile.TemporaryDirectory() as folder:
        card = opened(pathlib.Path(folder), text, "card" + (".json" if is_json else ".yaml"))
        for change in changes:
            old = card.text
            data, keys = wanted(data, change)
            getattr(card, change[0])(*change[1:])
            assert json.loads(card.text if is_json else to_json(card.text).json) == data
            if is_json:  # laid out in lines as it was; keys in their order
                assert card.text.rstrip("\n") in [
                    json.dumps(json.loads(card.text), indent=one)
                    for one in (1, 2, 4, "\t", None)]
            else:
                untouched(old, card.text, keys)
        card.save()
        assert (pathlib.Path(folder) / card.path).read_bytes() == card.text.encode()


def untouched(old: str, new: str, keys: "set[str]") -> None:
    """Every line that is about none of the keys is there in its order, all its
    characters and its comment; a comment goes only with a key's own line."""
    about = re.compile("|".join(rf"\b{key}\b" for key in sorted(keys)))
    rows = iter(new.splitlines())
    for line in old.splitlines():
        code, mark, note = line.partition("#")
        if not mark or mark + note not in new or about.search(code):
            assert not mark or mark + note in new or about.search(code), (line, new)
            continue
        row = next(row for row in rows if row.endswith(mark + note))
        characters = iter(row.removesuffix(mark + note))
        assert all(one in characters for one in code), (line, row)
    notes = re.compile(r"# c\d+\.|# the end")
    left = notes.findall(new)
    assert left == [one for one in notes.findall(old) if one in left]
    assert new.count("\r") == (new.count("\n") if "\r" in old else 0)
