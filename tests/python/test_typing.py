"""The stub says what the compiled module is, and both type-check."""

from __future__ import annotations

import ast
import inspect
import os
import pathlib
import re
import subprocess
import sys
import typing

import pytest

import fivegates
from fivegates import _core, runner

FOLDER = pathlib.Path(fivegates.__file__).parent
STUB = ast.parse((FOLDER / "_core.pyi").read_text(encoding="utf-8"))


def members(body: "list[ast.stmt]") -> "dict[str, ast.stmt]":
    out: "dict[str, ast.stmt]" = {}
    for node in body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            out[node.name] = node
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            out[node.target.id] = node
    return out


def is_alias(node: ast.stmt) -> bool:
    return (isinstance(node, ast.AnnAssign)
            and ast.unparse(node.annotation) == "TypeAlias")


def is_typed_dict(node: ast.stmt) -> bool:
    """Or a protocol: what only type checkers see."""
    return isinstance(node, ast.ClassDef) and any(
        ast.unparse(base) in ("TypedDict", "Protocol") for base in node.bases)


TOP = {name: node for name, node in members(STUB.body).items()
       if not is_alias(node) and not is_typed_dict(node)}
CLASSES = {name: node for name, node in TOP.items()
           if isinstance(node, ast.ClassDef)}


def test_module_names() -> None:
    live = {name for name in vars(_core) if not name.startswith("__")}
    assert live == set(TOP)


@pytest.mark.parametrize("name", sorted(CLASSES))
def test_class_names(name: str) -> None:
    live = {one for one in vars(getattr(_core, name))
            if not one.startswith("__") or one == "__match_args__"}
    said = {one for one in members(CLASSES[name].body)
            if one not in ("__new__",)}
    assert live == said


def test_constants() -> None:
    for name, node in TOP.items():
        if isinstance(node, ast.AnnAssign) and node.value is not None:
            assert getattr(_core, name) == ast.literal_eval(node.value), name


ALIASES = {name: node for name, node in members(STUB.body).items()
           if is_alias(node)}
TABLES = {"Action": "action", "Owner": "owner", "Gate": "gate",
          "FailureClass": "class", "Phase": "phase", "Scope": "scope",
          "Period": "period", "Billed": "billed", "Commit": "commit",
          "Effect": "effect", "Delivery": "delivery",
          "ServerState": "server_state", "ToolState": "tool",
          "EventKind": "event", "Finish": "finish", "Feature": "feature",
          "Unable": "unable", "Step": "step", "Resume": "resume",
          "Lookup": "lookup", "Wire": "wire"}


@pytest.mark.parametrize("alias", sorted(TABLES))
def test_literals(alias: str) -> None:
    node = ALIASES[alias]
    assert isinstance(node, ast.AnnAssign)
    assert isinstance(node.value, ast.Subscript)
    words = ast.literal_eval(node.value.slice)
    assert list(words) == list(_core.names(TABLES[alias]))


def keywords(node: ast.stmt) -> "set[str]":
    assert isinstance(node, ast.FunctionDef)
    args = node.args
    return {arg.arg for arg in (*args.args, *args.kwonlyargs)} - {"self", "cls"}


def probe(call: "typing.Callable[..., object]", word: str) -> bool:
    """Whether a method knows a keyword: it complains of another thing, or
    not at all."""
    try:
        call(**{word: object()})
    except TypeError as exc:
        return not re.search(rf"no (argument|fact) '{word}'|unexpected keyword"
                             rf"|'{word}' is an invalid keyword", str(exc))
    except Exception:
        return True
    return True


def test_keywords(policy: fivegates.Policy) -> None:
    engine = fivegates.Engine(policy)
    call = engine.begin("w")
    call.begin_attempt()
    checked = 0
    for obj in (policy, engine, engine.region, call, call.decision):
        for name, node in members(CLASSES[type(obj).__name__].body).items():
            if not isinstance(node, ast.FunctionDef) or name.startswith("_"):
                continue
            if node.decorator_list and ast.unparse(
                    node.decorator_list[0]) == "property":
                continue
            if name in ("run", "arun"):
                continue
            method = getattr(obj, name)
            for word in keywords(node):
                given = ({"kind": "sent"} if name == "event" and word != "kind"
                         else {})
                assert probe(lambda **kw: method(**given, **kw), word), (
                    f"{name}({word}=)")
                checked += 1
    assert checked > 40
    for function in (_core.classify, _core.decide):
        for word in keywords(TOP[function.__name__]):
            assert probe(function, word)


def test_keywords_are_refused(policy: fivegates.Policy) -> None:
    engine = fivegates.Engine(policy)
    call = engine.begin("w")
    for method in (call.begin_attempt, call.deadline, call.success, call.usage,
                   call.cancel, engine.tick):
        assert not probe(method, "no_such_word")


EXAMPLE = '''
import fivegates

policy = fivegates.Policy.load("card.yaml")
engine = fivegates.Engine(policy, region="/dev/shm/fivegates")
call = engine.begin("w", prompt_tokens=5, stream=False, unable=["wait"])
decision = call.begin_attempt()
reveal_type(decision.action)
reveal_type(decision.route)
reveal_type(decision.wait_ms)
reveal_type(call.success(output="x"))
reveal_type(fivegates.classify({"status": 429}).owner)

def send(attempt: fivegates.Attempt) -> int:
    return attempt.number

reveal_type(engine.run("w", send, prompt_tokens=5, preset=lambda d: d.text))
reveal_type(engine.run("w", send, outcome=True).call)
call.event("nonsense")
engine.run("w", send, promt_tokens=5)
'''


def mypy_env() -> "dict[str, str]":
    """An installed package is found by itself, another one by MYPYPATH."""
    if "site-packages" in str(FOLDER):
        return dict(os.environ)
    return {**os.environ, "MYPYPATH": str(FOLDER.parent)}


def test_mypy(tmp_path: pathlib.Path) -> None:
    pytest.importorskip("mypy")
    if os.environ.get("FIVEGATES_SANITIZE"):
        pytest.skip("mypy says the same without sanitizers")
    file = tmp_path / "example.py"
    file.write_text(EXAMPLE)
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--cache-dir",
         str(tmp_path / "cache"), "--python-executable", sys.executable,
         str(file)], capture_output=True, text=True, check=False,
        env=mypy_env(), cwd=tmp_path)
    told = done.stdout.replace("builtins.", "")
    for wanted in ("Literal['fail_closed'", "str | None", '"int"',
                   "fivegates._core.Decision", "Literal['transient'",
                   '"fivegates._core.Call"'):
        assert wanted in told, told
    errors = [line for line in told.splitlines() if ": error:" in line]
    assert len({line.split(":")[1] for line in errors}) == 2, told
    assert "nonsense" in errors[0] and "promt_tokens" in errors[1], told


def test_run_takes_what_begin_takes() -> None:
    options, = (node for node in STUB.body if isinstance(node, ast.ClassDef)
                and node.name == "_Options")
    engine = members(CLASSES["Engine"].body)
    loop = inspect.signature(runner.run).parameters
    wanted = keywords(engine["begin"]) - {"workflow"} | {"resume"} | {
        name for name, one in loop.items() if one.kind is one.KEYWORD_ONLY
    } - {"outcome", "sleep"}
    assert set(members(options.body)) == wanted
    assert set(inspect.signature(runner.arun).parameters) == set(loop)


def test_mypy_of_the_package(tmp_path: pathlib.Path) -> None:
    pytest.importorskip("mypy")
    if os.environ.get("FIVEGATES_SANITIZE"):
        pytest.skip("mypy says the same without sanitizers")
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--cache-dir",
         str(tmp_path / "cache"), "-p", "fivegates"], capture_output=True,
        text=True, check=False, cwd=tmp_path, env=mypy_env())
    assert done.returncode == 0, done.stdout + done.stderr


def test_no_optional_import() -> None:
    code = ("import sys, fivegates; print(sorted(set(sys.modules) & {'httpx', "
            "'httpx2', 'requests', 'openai', 'anthropic', 'aiohttp', 'yaml', "
            "'typer', 'rich', 'urllib3'}))")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True,
                          text=True, check=True)
    assert done.stdout.strip() == "[]"
