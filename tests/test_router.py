"""The router: what it passes on and to whom; nothing of Ray is left, however its owner ends."""

import os
import subprocess
import sys
import time
from types import SimpleNamespace

import httpx
import psutil
import pytest
from owners import Tree, end

from helpers import client, engine, reference, router
from helpers.errors import LabError
from helpers.routing import Rule

RULE = Rule("words", 3)
SHORT, LONG = "hi there", "one two three four five"
OWNER = """
import sys, time
from helpers import router
from helpers.routing import Rule
from types import SimpleNamespace
simple, hard = (SimpleNamespace(url=url, model=sys.argv[3]) for url in sys.argv[1:3])
front = router.start({"simple": simple, "hard": hard}, Rule("words", 3))
print("started", front.url, front.pid, front.port, flush=True)
time.sleep(600)
"""


@pytest.fixture(scope="module")
def front(tmp_path_factory):
    """A router in front of two servers of known latencies, and the script that owns it."""
    pytest.importorskip("ray")
    simple, hard = reference.serve(first_s=0.1, gap_s=0.05), reference.serve(first_s=0.4)
    with simple, hard:
        owner = subprocess.Popen(
            [sys.executable, "-c", OWNER, simple.url, hard.url, simple.model], text=True,
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True,
            cwd=tmp_path_factory.mktemp("owner"))
        told = next(line for line in owner.stdout if line.startswith("started")).split()
        yield SimpleNamespace(url=told[1], pid=int(told[2]), port=int(told[3]), owner=owner,
                              model=simple.model, engines={"simple": simple, "hard": hard})
        end(owner)


def ask(front, **body):
    return httpx.post(f"{front.url}/v1/completions", timeout=60, trust_env=False,
                      json={"model": front.model, "max_tokens": 2, **body})


def test_it_listens_on_this_machine_only(front):
    assert front.url.startswith("http://127.0.0.1:")
    tree = {child.pid for child in psutil.Process(front.pid).children(recursive=True)}
    listening = [connection.laddr for connection in psutil.net_connections("inet")
                 if connection.pid in tree and connection.status == psutil.CONN_LISTEN]
    assert front.port in {address.port for address in listening}
    assert {address.ip.removeprefix("::ffff:") for address in listening} == {"127.0.0.1"}


@pytest.mark.parametrize(("text", "name"), [(SHORT, "simple"), (LONG, "hard")])
def test_it_chooses_by_the_text_alone(front, text, name):
    chat = httpx.post(f"{front.url}/v1/chat/completions", trust_env=False, timeout=60, json={
        "model": front.model, "max_tokens": 2,
        "messages": [{"role": "system", "content": "a long instruction, that nobody asked for"},
                     {"role": "user", "content": text}]})
    for answer in (ask(front, prompt=text), chat):
        assert answer.status_code == 200 and answer.headers["x-engine"] == name
        assert answer.json()["usage"]["completion_tokens"] == 2


def test_the_text_streams_through_as_it_comes(front):
    direct = client.stream(front.engines["simple"], SHORT, max_tokens=9)
    routed = client.stream(front, SHORT, max_tokens=9)
    assert routed.text == direct.text and routed.output_tokens == 9
    assert len(routed.chunk_times_s) == len(direct.chunk_times_s) == 9
    assert 0.1 < routed.ttft_s < 0.4  # before the last token, which is due after 0.5 s
    assert all(b > a for a, b in zip(routed.chunk_times_s, routed.chunk_times_s[1:], strict=False))


def test_many_at_once(front):
    rows = client.streams(front, [SHORT, LONG] * 16, max_tokens=4, concurrency=32)
    assert list(rows.outcome) == ["ok"] * 32
    assert rows.ttft_s[1::2].min() >= 0.4 > rows.ttft_s[::2].median()


def test_a_refusal_comes_through_as_it_is(front):
    wrong = ask(front, prompt=SHORT, model="nobody")
    direct = httpx.post(f"{front.engines['simple'].url}/v1/completions", trust_env=False,
                        json={"model": "nobody", "prompt": SHORT})
    assert (wrong.status_code, wrong.json()) == (direct.status_code, direct.json())
    assert httpx.get(f"{front.url}/v1/models", trust_env=False).json()["data"]


def test_an_engine_that_is_gone_is_named(front):
    front.engines["hard"].stop()
    answer = ask(front, prompt=LONG)
    assert answer.status_code == 502 and "hard" in answer.json()["error"]["message"]
    assert ask(front, prompt=SHORT).status_code == 200


def test_nothing_is_left_when_its_owner_is_killed(front):
    tree = look(front.pid, front.port)
    assert len(tree.pids) > 5
    front.owner.kill()
    tree.seconds_until_gone()


def test_one_that_is_still_starting_is_ended_by_the_next():
    nobody = SimpleNamespace(model="m", url="http://127.0.0.1:9")
    first = router.start({"simple": nobody, "hard": nobody}, RULE)
    tree = look(first.pid, first.port)
    with router.start({"simple": nobody, "hard": nobody}, RULE) as second:
        assert not tree.left() and router._live == [second]
        tree = look(second.pid, second.port)
    assert not tree.left() and not router._live
    second.stop()
    with pytest.raises(LabError, match="ended"):
        _ = second.url


def look(pid, port):
    """Ray's processes, each in a session of its own, and files of a running router."""
    while not psutil.Process(pid).children():  # the supervisor itself has just been started
        time.sleep(0.05)
    tree = Tree(pid, port, os.getpid()).look()
    for child in psutil.Process(pid).children(recursive=True):
        tree.pids |= Tree(os.getsid(child.pid), port, os.getpid()).pids
    return tree


def test_without_ray_it_says_so(monkeypatch):
    monkeypatch.setattr(router.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(LabError, match="Ray is not installed"):
        router.start({}, RULE)


def test_engines_of_two_models_are_refused():
    some = {"simple": SimpleNamespace(model="a"), "hard": SimpleNamespace(model="b")}
    with pytest.raises(LabError, match="one model"):
        router.start(some, RULE)


def test_a_router_that_fails_says_why(monkeypatch, tmp_path):
    monkeypatch.setattr(engine, "LOGS", tmp_path)
    broken = tmp_path / "ray.py"
    broken.write_text("raise OSError('no room for Ray')")
    monkeypatch.setitem(router.ENV, "PYTHONPATH", f"{tmp_path}:{router.ROOT}")
    nobody = SimpleNamespace(model="m", url="http://127.0.0.1:9")
    with router.start({"simple": nobody, "hard": nobody}, RULE) as front, \
            pytest.raises(LabError, match="no room for Ray"):
        _ = front.url
