"""A card file that is changed in place: every change is checked by the engine
before it is written, and touches nothing but what it is about."""

from __future__ import annotations

import contextlib
import decimal
import difflib
import fcntl
import json
import os
import pathlib
import stat
import tempfile
import typing

from fivegates._core import Policy
from fivegates.contract.edit import Path, put, take_out
from fivegates.errors import FivegatesError, PolicyError
from fivegates.yaml import place_of, to_json

__all__ = ["CardFile", "ContractError", "Json"]

Json = typing.Dict[str, typing.Any]
_BOM = b"\xef\xbb\xbf"
_YAML = (".yaml", ".yml")


class ContractError(FivegatesError):
    """What a contract command cannot work with: where, what, and the remedy."""

    result = "contract"


class _Loaded(typing.NamedTuple):
    data: Json
    policy: Policy


def _load(text: str, is_json: bool, file: str) -> _Loaded:
    """A card's text as the engine reads it; PolicyError with its place."""
    places: "dict[str, tuple[int, int]] | None" = None
    source = text
    try:
        if not is_json:
            source, places = to_json(text)
        policy = Policy.loads(source, json=True)
    except PolicyError as exc:
        if places is not None:
            exc.line, exc.column = place_of(exc.path, places)
        raise PolicyError(exc.message, exc.code, exc.path, exc.line, exc.column,
                          file) from None
    try:
        return _Loaded(json.loads(source, parse_float=decimal.Decimal), policy)
    except (ValueError, decimal.InvalidOperation):  # a second BOM; 1e-9999999999999999999
        raise ContractError(f"{file}: the engine reads this card, and JSON's own readers "
                            "do not; take out a second byte-order mark, and write "
                            "numbers out without an exponent") from None


class CardFile:
    """A card in a file, YAML or JSON.

    path: as it was named; data: what the card says (numbers with a point are
    Decimal); policy: what the engine makes of it; text: with the changes so
    far. Nothing is written before save().
    """

    def __init__(self, path: str, raw: bytes, is_json: bool, text: str) -> None:
        self.path = path
        # Where it was read: a link may turn, and a function of the user's change
        # the directory, before it is written.
        self._real = os.path.realpath(path)
        self._raw = raw
        self._is_json = is_json
        self.text = self._old = text
        self.data, self.policy = _load(text, is_json, path)

    @classmethod
    def open(cls, path: "str | os.PathLike[str]") -> "CardFile":
        """Reads a card. ContractError where the file cannot be read,
        PolicyError where it does not load."""
        name = os.fspath(path)
        try:
            raw = pathlib.Path(name).read_bytes()
        except OSError as exc:
            raise ContractError(f"{name}: {exc.strerror or exc}; name a card "
                                "that can be read") from None
        try:
            text = raw.removeprefix(_BOM).decode("utf-8")
        except UnicodeDecodeError as exc:
            line = raw.count(b"\n", 0, exc.start) + 1
            raise ContractError(f"{name}:{line}: the text is not UTF-8; save it "
                                "as UTF-8") from None
        is_json = name.lower().endswith(".json") or (
            text.lstrip()[:1] == "{" and not name.lower().endswith(_YAML))
        return cls(name, raw, is_json, text)

    # ---- what the card says

    def contract(self, workflow: str, route: str) -> "Json | None":
        """The contract of a pair as the card states it; None: there is none."""
        index = self._contract_index(workflow, route)
        found: "Json | None" = (None if index is None
                                else self.data["contracts"][index])
        return found

    def _contract_index(self, workflow: str, route: str) -> "int | None":
        return next((index for index, one in enumerate(
            self.data.get("contracts") or []) if one["workflow"] == workflow
            and one["route"] == route), None)

    # ---- changes

    def put_contract(self, workflow: str, route: str, values: Json) -> None:
        """Sets keys of a pair's contract, and makes the contract where there is
        none. A key set to None is taken out. A value replaces what was there as
        a whole, and the comments beside what stays are kept.

        New evidence does not renew an approval of something else: where the
        contract's fingerprint is not the card's any more, setting `evidence`
        takes out `fingerprint`, `approved_by` and `price`.
        """
        index = self._contract_index(workflow, route)
        if index is None:
            new = {"workflow": workflow, "route": route, **values}
            index = len(self.data.get("contracts") or [])
            self._change([(("contracts", index), {
                key: value for key, value in new.items() if value is not None})])
            return
        now = self.data["contracts"][index]
        approved = now.get("fingerprint")
        if "evidence" in values and approved and approved != self.policy.contract(
                workflow, route)["fingerprint"]:
            values = {**dict.fromkeys(("fingerprint", "approved_by", "price")),
                      **values}
        self._change([(("contracts", index, key), value)
                      for key, value in values.items()])

    def put_provides(self, route: str, section: str, key: str,
                     value: object) -> None:
        """Sets one key of what a route provides."""
        self._change([(("routes", route, "provides", section, key), value)])

    def put_price(self, route: str, price: "Json | str") -> None:
        """Sets a route's price: input, cached_input, output in USD per million
        tokens, or `free`."""
        self._change([(("routes", route, "price"), price)])

    def _change(self, changes: "typing.Sequence[tuple[Path, typing.Any]]") -> None:
        """All of them or none; the text must load, and say what was wanted."""
        text = self.text
        wanted = _copied(self.data)
        for path, value in changes:
            old, value = _value(wanted, path), _copied(value)
            if value is None:
                if old is not None:
                    text = take_out(text, self._is_json, path)
                    del _value(wanted, path[:-1])[path[-1]]
                continue
            text = put(text, self._is_json, path, value, old)
            _set(wanted, path, value)
        where = ", ".join(".".join(map(str, path)) for path, _ in changes)
        try:
            data, policy = _load(text, self._is_json, self.path)
        except PolicyError as exc:
            if exc.code != "syntax":  # its place would be that in the new text
                raise PolicyError(exc.message, exc.code, exc.path, 0, 0,
                                  self.path) from None
            data, policy = {}, self.policy
        if data != wanted:
            raise ContractError(
                f"{self.path}: {where} cannot be changed in this layout; write "
                "the part around it as a plain block, a key a line")
        self.text, self.data, self.policy = text, data, policy

    # ---- the file

    @property
    def changed(self) -> bool:
        """Whether save() would write anything."""
        return self.text != self._old

    def diff(self) -> str:
        """What save() would change, as a unified diff."""
        return "".join(one if one.endswith("\n") else one + "\n"
                       for one in difflib.unified_diff(
                           self._old.splitlines(True), self.text.splitlines(True),
                           self.path, self.path + " (new)"))

    def save(self) -> None:
        """Writes the changed card in the old one's place, in one step.

        ContractError where the file has changed since it was read, may not be
        written, or another program is writing it; the old one then stays.
        """
        if not self.changed:
            return
        raw = (_BOM if self._raw.startswith(_BOM) else b"") + self.text.encode()
        try:
            with open(self._real, "rb") as file:
                self._replace(file, raw)
        except BlockingIOError:
            raise ContractError(f"{self.path}: another program is writing it; "
                                "try again") from None
        except OSError as exc:
            raise ContractError(f"{self.path}: {exc.strerror or exc}; the card "
                                "is as it was") from None
        self._raw, self._old = raw, self.text

    def check_writable(self) -> None:
        """ContractError where save() could not write; nothing is written."""
        try:
            mode = os.stat(self._real).st_mode
        except OSError as exc:
            raise ContractError(f"{self.path}: {exc.strerror or exc}; name a card "
                                "that can be read") from None
        if not stat.S_ISREG(mode):
            raise ContractError(f"{self.path}: no plain file, so nothing can be written "
                                "into it; name the card's own file")
        if not mode & 0o222 or not os.access(self._real, os.W_OK):
            raise ContractError(f"{self.path}: the file is read-only; make it "
                                "writable, or work on a copy")
        if not os.access(os.path.dirname(self._real), os.W_OK | os.X_OK):
            raise ContractError(f"{self.path}: its directory is read-only, and a card is "
                                "replaced as a whole; make it writable, or work on a copy")

    def _replace(self, file: typing.BinaryIO, raw: bytes) -> None:
        self.check_writable()
        real, mode = self._real, os.fstat(file.fileno()).st_mode
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        folder, name = os.path.split(real)
        made, new = tempfile.mkstemp(prefix=f".{name}.", dir=folder)
        try:
            with os.fdopen(made, "wb") as out:
                os.fchmod(made, mode & 0o7777)
                out.write(raw)
                out.flush()
                os.fsync(made)
            if pathlib.Path(real).read_bytes() != self._raw:
                raise ContractError(f"{self.path}: the file changed meanwhile; "
                                    "nothing was written, run the command again")
            os.replace(new, real)
        except BaseException:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(new)
            raise
        # The new name is to outlive a crash, where folders can be waited for; it is
        # written either way.
        with contextlib.suppress(OSError):
            held = os.open(folder, os.O_RDONLY)
            try:
                os.fsync(held)
            finally:
                os.close(held)


def _copied(data: typing.Any) -> typing.Any:
    """A copy with the types that a card is read with."""
    if isinstance(data, dict):
        return {key: _copied(value) for key, value in data.items()}
    if isinstance(data, (list, tuple)):
        return [_copied(one) for one in data]
    return decimal.Decimal(str(data)) if isinstance(data, float) else data


def _value(data: typing.Any, path: Path) -> typing.Any:
    """What is at a path; None: nothing."""
    for key in path:
        if isinstance(key, int):
            data = data[key] if isinstance(data, list) and key < len(data) else None
        else:
            data = data.get(key) if isinstance(data, dict) else None
    return data


def _set(data: typing.Any, path: Path, value: object) -> None:
    for key, after in zip(path, (*path[1:], None)):
        if after is None:
            if isinstance(key, int):
                data.append(value)
            else:
                data[key] = value
            return
        if _value(data, (key,)) is None:
            data[key] = [] if isinstance(after, int) else {}
        data = data[key]
