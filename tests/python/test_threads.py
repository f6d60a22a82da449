"""One engine, many threads: counts add up, nothing stays in flight."""

from __future__ import annotations

import threading

import fivegates

THREADS, CALLS = 8, 400


def test_threads(policy: fivegates.Policy) -> None:
    engine = fivegates.Engine(policy, seed=1)
    errors: "list[BaseException]" = []
    ids: "list[str]" = []
    start = threading.Barrier(THREADS)

    def work(number: int) -> None:
        try:
            start.wait()
            for i in range(CALLS):
                call = engine.begin("bare", prompt_tokens=10,
                                    max_output_tokens=10)
                ids.append(call.id)
                assert call.begin_attempt().action == "proceed"
                call.event("sent")
                if i % 3 == 0:
                    call.event("token", 2)
                    call.success(prompt_tokens=10, output_tokens=2, output="x")
                elif i % 3 == 1:
                    call.cancel()
                if i % 7 == 0:
                    engine.route("main")
                    engine.tick()
        except BaseException as exc:
            errors.append(exc)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert len(set(ids)) == THREADS * CALLS
    view = engine.route("main")
    assert view["attempts"] == THREADS * CALLS
    assert view["in_flight"] == 0
    counters = engine.workflow("bare")
    assert counters["calls"] == THREADS * CALLS
    assert counters["primary_success"] == THREADS * len(range(0, CALLS, 3))


def test_two_engines_on_one_region(policy: fivegates.Policy) -> None:
    engine = fivegates.Engine(policy, seed=1)
    others = [engine.reload(policy) for _ in range(4)]

    def work(one: fivegates.Engine) -> None:
        for _ in range(200):
            call = one.begin("bare")
            call.begin_attempt()
            call.success(prompt_tokens=1, output_tokens=1, output="x")

    threads = [threading.Thread(target=work, args=(one,)) for one in others]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert engine.route("main")["successes"] == 800
