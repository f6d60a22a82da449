"""adapters.botocore with a real bedrock-runtime client on loopback."""

from __future__ import annotations

import binascii
import concurrent.futures
import http.server
import json
import socket
import struct
import threading
import time
import typing
import urllib.parse

import pytest

import fivegates
from fivegates.testing import ManualClock

from .conftest import UNIX_MS

pytest.importorskip("botocore")
import botocore.config  # noqa: E402
import botocore.exceptions  # noqa: E402
import botocore.session  # noqa: E402

from fivegates.adapters.bedrock import facts_of  # noqa: E402
from fivegates.adapters.botocore import evidence, guard  # noqa: E402

SESSION = botocore.session.Session()
ASK = [{"role": "user", "content": [{"text": "x"}]}]
ERRORS = {"throttled": (429, "ThrottlingException", "Too many requests."),
          "unavailable": (503, "ServiceUnavailableException", "Try later."),
          "timeout": (408, "ModelTimeoutException", "The model timed out."),
          "invalid": (400, "ValidationException", "messages: bad"),
          "denied": (403, "AccessDeniedException", "no access to the model")}
ANSWER = {"output": {"message": {"role": "assistant",
                                 "content": [{"text": "hello"}]}},
          "stopReason": "end_turn", "metrics": {"latencyMs": 1},
          "usage": {"inputTokens": 9, "outputTokens": 3, "totalTokens": 12}}
EVENTS: "list[tuple[str, dict[str, typing.Any]]]" = [
    ("messageStart", {"role": "assistant"}),
    *(("contentBlockDelta", {"contentBlockIndex": 0, "delta": {"text": word}})
      for word in ("one ", "two ", "three ")),
    ("contentBlockStop", {"contentBlockIndex": 0}),
    ("messageStop", {"stopReason": "end_turn"}),
    ("metadata", {"usage": {"inputTokens": 9, "outputTokens": 5,
                            "totalTokens": 14}, "metrics": {"latencyMs": 1}})]


def frame(headers: "dict[str, str]", payload: bytes) -> bytes:
    """One message of AWS's event-stream encoding."""
    packed = b""
    for name, value in headers.items():
        raw = value.encode()
        packed += (bytes([len(name)]) + name.encode() + b"\x07"
                   + struct.pack(">H", len(raw)) + raw)
    head = struct.pack(">II", 16 + len(packed) + len(payload), len(packed))
    head += struct.pack(">I", binascii.crc32(head))
    body = head + packed + payload
    return body + struct.pack(">I", binascii.crc32(body))


def event(name: str, value: object) -> bytes:
    return frame({":message-type": "event", ":event-type": name,
                  ":content-type": "application/json"},
                 json.dumps(value).encode())


def exception(name: str) -> bytes:
    return frame({":message-type": "exception", ":exception-type": name,
                  ":content-type": "application/json"}, b'{"message": "m"}')


class Handler(http.server.BaseHTTPRequestHandler):
    """/MODEL path: what a model does is its name's first part."""

    protocol_version = "HTTP/1.1"
    server: "Bedrock"

    def log_message(self, *args: object) -> None:
        pass

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        _, _, model, operation = self.path.split("/")
        mode, _, _ = urllib.parse.unquote(model).partition(":")
        with self.server.lock:
            self.server.seen.append((mode, operation, dict(self.headers)))
            self.server.bodies.append(json.loads(raw))
        if mode in ERRORS:
            status, kind, text = ERRORS[mode]
            self.json(status, {"message": text}, {"x-amzn-ErrorType": kind})
        elif mode == "reset":
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)
        elif mode == "slow":
            time.sleep(0.4)
            self.json(200, ANSWER, {})
        elif operation == "invoke":
            self.json(200, {"content": [{"type": "text", "text": "hello"}],
                            "stop_reason": "end_turn",
                            "usage": {"input_tokens": 9, "output_tokens": 3}}, {})
        elif operation == "converse":
            empty = {**ANSWER, "output": {"message": {
                "role": "assistant", "content": []}}, "usage": {
                    "inputTokens": 0, "outputTokens": 0, "totalTokens": 0}}
            self.json(200, empty if mode == "empty" else ANSWER, {})
        else:
            self.stream(mode, operation)

    def json(self, status: int, value: object, headers: "dict[str, str]") -> None:
        raw = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(raw)))
        for name, text in headers.items():
            self.send_header(name, text)
        self.end_headers()
        self.wfile.write(raw)

    def stream(self, mode: str, operation: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/vnd.amazon.eventstream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        frames = [event(name, value) for name, value in EVENTS]
        if operation == "invoke-with-response-stream":
            frames = self.chunks(mode)
        if mode == "early":
            frames = frames[:1] + [exception("throttlingException")]
        if mode == "late":
            frames = frames[:3] + [exception("modelStreamErrorException")]
        if mode == "noise":
            frames = frames[:1] + [b"\0" * 40]
        for i, one in enumerate(frames):
            if mode == "cut" and i == 3:
                self.close_connection = True
                self.connection.shutdown(socket.SHUT_RDWR)
                return
            if mode == "endless" and i == 4:
                break
            self.wfile.write(b"%x\r\n%s\r\n" % (len(one), one))
        self.wfile.write(b"0\r\n\r\n")

    def chunks(self, mode: str) -> "list[bytes]":
        lines: "list[dict[str, typing.Any]]" = [
            {"type": "message_start", "message": {"usage": {
                "input_tokens": 9, "output_tokens": 1}}},
            {"type": "content_block_delta", "index": 0,
             "delta": {"type": "text_delta", "text": "one two"}},
            {"type": "message_delta", "delta": {"stop_reason": "end_turn"},
             "usage": {"output_tokens": 5}},
            {"type": "message_stop"}]
        if mode == "titan":  # a model whose JSON nobody knows
            lines = [{"outputText": "one"}, {
                "outputText": " two", "amazon-bedrock-invocationMetrics": {
                    "inputTokenCount": 9, "outputTokenCount": 5}}]
        return [event("chunk", {"bytes": binascii.b2a_base64(
            json.dumps(line).encode()).decode().strip()}) for line in lines]


class Bedrock(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.lock = threading.Lock()
        self.seen: "list[tuple[str, str, dict[str, str]]]" = []
        self.bodies: "list[typing.Any]" = []
        self.url = f"http://127.0.0.1:{self.server_port}"

    def handle_error(self, request: object, client_address: object) -> None:
        pass


class Rig:
    def __init__(self, card: "dict[str, typing.Any]", server: Bedrock) -> None:
        self.server = server
        self.card = card
        self.clock = ManualClock(unix_ms=UNIX_MS)
        self.heard: "list[fivegates.Decision]" = []
        self.calls: "list[fivegates.Call]" = []
        self.made: "list[typing.Any]" = []

    def told(self, decision: fivegates.Decision, call: fivegates.Call) -> None:
        self.heard.append(decision)
        self.calls.append(call)

    def client(self, model: str, workflow: str = "w", *,
               retries: "dict[str, typing.Any] | None" = None,
               url: "str | None" = None, **options: typing.Any) -> typing.Any:
        """A guarded client; the card's primary has this model."""
        for name, own in (("main", model), ("backup", "ok:2")):
            self.card["routes"][name].update(
                provider="bedrock", model=own, base_url=self.server.url,
                key_env="KEY_A", account=name)
        self.card["workflows"]["w"]["budget"] = {"extra_tokens": 100000,
                                                 "extra_cost_usd": 10}
        policy = fivegates.Policy.loads(self.card, auto_fingerprint=True)
        self.engine = fivegates.Engine(policy, seed=1, clock=self.clock)
        client = SESSION.create_client(
            "bedrock-runtime", region_name="us-east-1",
            endpoint_url=url or self.server.url, aws_access_key_id="a",
            aws_secret_access_key="s", config=botocore.config.Config(
                retries=retries, read_timeout=0.2, connect_timeout=1))
        self.made.append(client)
        guard(client, self.engine, workflow, sleep=self.clock.sleep,
              on_decision=self.told, **options)
        return client

    @property
    def modes(self) -> "list[str]":
        return [mode for mode, _, _ in self.server.seen]


def serving() -> "typing.Iterator[Bedrock]":
    server = Bedrock()
    thread = threading.Thread(target=server.serve_forever,
                              kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def rig(card: "dict[str, typing.Any]") -> "typing.Iterator[Rig]":
    for server in serving():
        out = Rig(card, server)
        yield out
        for client in out.made:
            client.close()
        assert out.engine.route("main")["in_flight"] == 0


def converse(client: typing.Any) -> typing.Any:
    return client.converse(modelId="any", messages=ASK,
                           inferenceConfig={"maxTokens": 300})


def stream(client: typing.Any) -> typing.Any:
    return client.converse_stream(modelId="any", messages=ASK)["stream"]


def text_of(events: "typing.Iterable[dict[str, typing.Any]]") -> str:
    return "".join(one["contentBlockDelta"]["delta"]["text"]
                   for one in events if "contentBlockDelta" in one)


RETRIES: "list[dict[str, typing.Any] | None]" = [
    None, {"total_max_attempts": 1}, {"total_max_attempts": 6},
    {"mode": "legacy"}, {"mode": "legacy", "total_max_attempts": 1}]


@pytest.mark.parametrize("retries", RETRIES, ids=str)
def test_the_engine_counts(rig: Rig, retries: typing.Any) -> None:
    """Whatever the client is set to: so many sends as were permitted."""
    got = converse(rig.client("unavailable", retries=retries))
    assert got["output"]["message"]["content"] == [{"text": "hello"}]
    assert rig.modes == ["unavailable", "unavailable", "ok"]
    assert got["ResponseMetadata"]["RetryAttempts"] == 2
    waits = [d.wait_ms for d in rig.heard if d.action == "retry"]
    assert [round(s * 1000) for s in rig.clock.slept] == waits


def test_success(rig: Rig) -> None:
    converse(rig.client("ok"))
    assert [d.action for d in rig.heard] == ["proceed", "proceed", "accept"]
    assert rig.engine.route("main")["tokens"] == 12
    assert rig.modes == ["ok"]
    assert rig.server.bodies[0]["inferenceConfig"] == {"maxTokens": 300}


def test_another_model_is_signed_and_sent(rig: Rig) -> None:
    converse(rig.client("unavailable:v1"))
    assert [path for _, path, _ in rig.server.seen] == ["converse"] * 3
    for _, _, headers in rig.server.seen:
        assert "Signature=" in headers["Authorization"]


def test_another_endpoint_is_out_of_reach(rig: Rig) -> None:
    rig.card["routes"]["backup"].update(base_url="x")
    client = rig.client("unavailable")
    rig.card["routes"]["backup"]["base_url"] = "http://127.0.0.1:1"
    policy = fivegates.Policy.loads(rig.card, auto_fingerprint=True)
    rig.engine = fivegates.Engine(policy, seed=1, clock=rig.clock)
    client = SESSION.create_client(
        "bedrock-runtime", region_name="us-east-1", aws_access_key_id="a",
        aws_secret_access_key="s", endpoint_url=rig.server.url)
    rig.made.append(client)
    guard(client, rig.engine, "w", sleep=rig.clock.sleep)
    with pytest.raises(fivegates.Refused):
        converse(client)
    assert rig.modes == ["unavailable", "unavailable"]


@pytest.mark.parametrize("mode,reason,sends", [
    ("invalid", "request_invalid", 1), ("denied", "key_rejected", 1),
    ("throttled", None, 2), ("timeout", None, 2)])
def test_refused(rig: Rig, mode: str, reason: "str | None", sends: int) -> None:
    rig.card["workflows"]["bare"]["budget"] = {
        "total_attempts": 2, "extra_tokens": 100000, "extra_cost_usd": 10}
    client = rig.client(mode, "bare")
    with pytest.raises(fivegates.Refused) as caught:
        converse(client)
    assert rig.modes == [mode] * sends
    if reason:
        assert caught.value.decision.reason == reason
    cause = caught.value.__cause__
    assert isinstance(cause, client.exceptions.from_code(ERRORS[mode][1]))
    assert cause.response["Error"]["Message"] == ERRORS[mode][2]


def test_owners(rig: Rig) -> None:
    owners = {}
    for mode in ERRORS:
        rig.heard.clear()
        with pytest.raises(fivegates.Refused):
            converse(rig.client(mode, "bare"))
        owners[mode] = rig.heard[2].owner
    assert owners == {"throttled": "rate", "unavailable": "transient",
                      "timeout": "transient", "invalid": "request",
                      "denied": "auth"}


def test_reraise(rig: Rig) -> None:
    client = rig.client("invalid", reraise=True)
    with pytest.raises(client.exceptions.ValidationException) as caught:
        converse(client)
    refused = caught.value.response["Refused"]
    assert refused.decision.reason == "request_invalid"
    assert rig.modes == ["invalid"]


def test_reraise_of_what_was_never_answered(rig: Rig) -> None:
    client = rig.client("reset", "bare", reraise=True)
    with pytest.raises(botocore.exceptions.ConnectionClosedError) as caught:
        converse(client)
    assert isinstance(caught.value.refused, fivegates.Refused)
    assert rig.modes == ["reset"]


@pytest.mark.parametrize("retries", RETRIES, ids=str)
@pytest.mark.parametrize("mode", ["reset", "slow"])
def test_silence_goes_to_a_stand_in(rig: Rig, mode: str,
                                    retries: typing.Any) -> None:
    """botocore's own handler, left in, would raise at its last attempt."""
    converse(rig.client(mode, retries=retries))
    assert rig.modes == [mode, "ok"]


def test_never_sent(rig: Rig, closed_port: int) -> None:
    client = rig.client("ok", "bare", url=f"http://127.0.0.1:{closed_port}")
    with pytest.raises(fivegates.Refused) as caught:
        converse(client)
    assert isinstance(caught.value.__cause__,
                      botocore.exceptions.EndpointConnectionError)
    assert {d.kind for d in rig.heard if d.action == "retry"} == {
        "connect_failed"}


def test_an_empty_answer_is_sent_again(rig: Rig) -> None:
    converse(rig.client("empty"))
    assert rig.modes[0] == "empty" and rig.modes[-1] == "ok"


def test_permission_comes_before_the_first_send(rig: Rig) -> None:
    client = rig.client("denied", "bare")
    for _ in range(2):
        with pytest.raises(fivegates.Refused):
            converse(client)
    assert rig.modes == ["denied"]


def test_a_stream(rig: Rig) -> None:
    got = stream(rig.client("ok"))
    assert text_of(got) == "one two three "
    assert rig.heard[-1].action == "accept"
    assert rig.engine.route("main")["tokens"] == 14
    got.close()


@pytest.mark.parametrize("mode", ["early", "noise", "unavailable", "reset"])
def test_nothing_shown_is_sent_again(rig: Rig, mode: str) -> None:
    assert text_of(stream(rig.client(mode))) == "one two three "
    assert rig.modes[0] == mode and rig.modes[-1] == "ok"
    if mode == "early":  # the exception's name is read
        assert rig.heard[2].owner == "rate"


@pytest.mark.parametrize("mode", ["late", "cut", "endless"])
def test_cut_after_the_first_content(rig: Rig, mode: str) -> None:
    seen: "list[dict[str, typing.Any]]" = []
    with pytest.raises(fivegates.Refused) as caught:
        for one in stream(rig.client(mode)):
            seen.append(one)
    assert text_of(seen).startswith("one ")
    assert caught.value.decision.reason == "partial_output"
    assert rig.modes == [mode]


def test_closed_by_the_caller(rig: Rig) -> None:
    got = stream(rig.client("ok"))
    next(iter(got))
    before = rig.engine.route("main")["failures"]
    got.close()
    assert rig.calls[0].decision.reason == "client_gone"
    assert rig.engine.route("main")["failures"] == before  # nobody is blamed


def test_invoke(rig: Rig) -> None:
    got = rig.client("ok").invoke_model(
        modelId="any", body=json.dumps({"max_tokens": 5, "messages": []}))
    assert json.loads(got["body"].read())["content"][0]["text"] == "hello"
    assert rig.heard[-1].action == "accept"
    assert rig.engine.route("main")["tokens"] == 12


@pytest.mark.parametrize("mode", ["ok", "titan"])
def test_invoke_stream(rig: Rig, mode: str) -> None:
    got = rig.client(mode).invoke_model_with_response_stream(
        modelId="any", body="{}")
    lines = [json.loads(one["chunk"]["bytes"]) for one in got["body"]]
    assert len(lines) == (4 if mode == "ok" else 2)
    assert rig.heard[-1].action == "accept"
    assert rig.engine.route("main")["tokens"] == 14


def test_threads_share_a_client(rig: Rig) -> None:
    client = rig.client("ok")
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: converse(client), range(24)))
    assert len({call.id for call in rig.calls}) == 24
    assert rig.modes == ["ok"] * 24


def test_facts_of_one_request(rig: Rig) -> None:
    def facts(operation: str, body: "dict[str, typing.Any]") -> "dict[str, typing.Any]":
        assert operation == "Converse" and body["messages"] == ASK
        return {"prompt_tokens": 10_000_000}

    with pytest.raises(fivegates.Refused):
        converse(rig.client("ok", facts=facts))
    assert rig.modes == []


def test_what_is_refused(rig: Rig) -> None:
    with pytest.raises(fivegates.ArgumentError, match="adaptive"):
        rig.client("ok", retries={"mode": "adaptive"})
    client = rig.client("ok")
    with pytest.raises(fivegates.ArgumentError, match="already"):
        guard(client, rig.engine, "w")
    other = SESSION.create_client(
        "sts", region_name="us-east-1", aws_access_key_id="a",
        aws_secret_access_key="s")
    with pytest.raises(fivegates.ArgumentError, match="only bedrock-runtime"):
        guard(other, rig.engine, "w")
    other.close()


def test_facts_of_a_body() -> None:
    found = facts_of("ConverseStream", {
        "system": [{"text": "s"}], "inferenceConfig": {"maxTokens": 7},
        "messages": [{"role": "user", "content": [
            {"text": "word " * 400},
            {"image": {"format": "png", "source": {"bytes": "A" * 99999}}},
            {"toolResult": {"toolUseId": "1", "content": []}}]}],
        "toolConfig": {"tools": [{"toolSpec": {"name": "f"}}]}}, 5)
    assert found["stream"] is True and found["max_output_tokens"] == 7
    assert found["tools"] == ["f"]
    assert found["features"] == ["image", "system_prompt", "tool_round_trip",
                                 "tools"]
    assert 1400 < found["prompt_tokens"] < 1700


def test_evidence_for_a_loop_of_ones_own(rig: Rig) -> None:
    """An unguarded client's own retries are counted."""
    client = SESSION.create_client(
        "bedrock-runtime", region_name="us-east-1", aws_access_key_id="a",
        aws_secret_access_key="s", endpoint_url=rig.server.url,
        config=botocore.config.Config(retries={"total_max_attempts": 2,
                                               "mode": "standard"}))
    rig.made.append(client)
    rig.client("ok")
    with pytest.raises(botocore.exceptions.ClientError) as caught:
        client.converse(modelId="throttled", messages=ASK)
    found = evidence(caught.value)
    assert found is not None and found["inner_attempts"] == 2
    assert fivegates.classify(found).owner == "rate"
    assert evidence(KeyError("x")) is None
