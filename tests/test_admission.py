"""Ray Serve with limits, on two nodes: what a refusal says, and that nothing of it is left."""

import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import httpx
import psutil
import pytest
from owners import Tree, end
from test_router import look

from helpers import admission, reference, router
from helpers.errors import LabError

OWNER = """
import sys, time
from helpers import admission
front = admission.nodes({"reference": {"first_s": 0.5, "gap_s": 0.01}}, "reference",
                        {"ongoing": 1, "queued": 1, "retry_after_s": 2})
if sys.argv[1] == "wait":
    print("started", front.door("admission").url, front.pid, front.port, flush=True)
else:
    print("started", "-", front.pid, front.port, flush=True)
time.sleep(600)
"""


def own(how, folder):
    """(owner, url, pid, port) of a script that has started two nodes, and waited or not."""
    pytest.importorskip("ray")
    owner = subprocess.Popen([sys.executable, "-c", OWNER, how], text=True, cwd=folder,
                             stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                             start_new_session=True)
    _, url, pid, port = next(line for line in owner.stdout if line.startswith("started")).split()
    return SimpleNamespace(owner=owner, url=url, pid=int(pid), port=int(port))


@pytest.fixture(scope="module")
def front(tmp_path_factory):
    started = own("wait", tmp_path_factory.mktemp("owner"))
    yield started
    end(started.owner)


def test_the_fourth_or_fifth_is_refused_and_told_when_to_come_back(front):
    def ask(_):
        return httpx.post(f"{front.url}/v1/completions", timeout=60, trust_env=False,
                          json={"model": "reference", "max_tokens": 2, "prompt": "hi"})
    with ThreadPoolExecutor(10) as pool:
        answers = list(pool.map(ask, range(10)))
    codes = [answer.status_code for answer in answers]
    assert set(codes) == {200, 429} and 3 <= codes.count(200) <= 5  # two inside, one waits
    assert {answer.headers["retry-after"] for answer in answers
            if answer.status_code == 429} == {"2"}


def test_it_listens_on_this_machine_only(front):
    tree = {child.pid for child in psutil.Process(front.pid).children(recursive=True)}
    listening = {connection.laddr.ip.removeprefix("::ffff:")
                 for connection in psutil.net_connections("inet")
                 if connection.pid in tree and connection.status == psutil.CONN_LISTEN}
    assert listening == {"127.0.0.1"}


def test_nothing_is_left_when_its_owner_is_killed(front):
    tree = look(front.pid, front.port)
    assert len(tree.pids) > 8
    engines = [child for child in psutil.Process(front.pid).children(recursive=True)
               if "helpers.reference_server" in " ".join(child.cmdline())]
    assert engines  # the replicas' own
    front.owner.kill()
    tree.seconds_until_gone()
    assert not [engine for engine in engines if engine.is_running()]


def test_nothing_is_left_when_its_owner_is_interrupted_while_it_starts(tmp_path):
    started = own("go on", tmp_path)
    tree = look(started.pid, started.port)
    started.owner.send_signal(signal.SIGINT)
    started.owner.wait(20)
    tree.seconds_until_gone()
    assert isinstance(tree, Tree)


def test_without_ray_it_says_so(monkeypatch):
    monkeypatch.setattr(router.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(LabError, match="Ray is not installed"):
        admission.start([], {})
    with pytest.raises(LabError, match="Ray is not installed"):
        admission.nodes({}, "", {})


def test_two_servers_get_their_shares_in_an_open_loop():
    with reference.serve(first_s=0.01) as a, reference.serve(first_s=0.01) as b:
        rows = admission.ask({"a": a, "b": b}, admission.prompts(10, 8, 1), rate=20, max_tokens=2)
    assert list(rows.engine) == ["a"] * 5 + ["b"] * 5
    assert rows.intended_s.max() == pytest.approx(0.4)  # 10 a second to each
