"""Ray Serve with limits, on two nodes: what a refusal says, and that nothing of it is left."""

import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import httpx
import pandas as pd
import psutil
import pytest
from owners import Tree, end
from test_router import look

from helpers import admission, journal, reference, router, rows
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


def answers(target, texts, *, rate, max_tokens):
    """In place of admission.ask: every answer takes 0.1 s."""
    made = [{"sent_s": n / rate, "intended_s": n / rate, **rows.latencies([0.05, 0.1], 2),
             "input_tokens": len(text), "output_tokens": 2, "outcome": "ok", "error": ""}
            for n, text in enumerate(texts)]
    found = rows.table(made, tool="client", settings={})
    found.attrs.update(started=time.perf_counter(), wall_s=1.0, client_cpu_s=0.1)
    return found


def test_arms_take_turns_and_an_interrupted_run_goes_on(monkeypatch, tmp_path):
    asked = []

    def ask(target, texts, **about):
        if len(asked) == 5:
            asked.append("interrupted")
            raise KeyboardInterrupt
        asked.append((target, len(texts)))
        return answers(target, texts, **about)

    monkeypatch.setattr(journal, "PARTIAL", tmp_path)
    monkeypatch.setattr(admission, "ask", ask)
    monkeypatch.setattr(admission, "PAUSE_S", 0)
    recorded = []
    monkeypatch.setattr(admission.results, "record", lambda name, runs: recorded.append(name))
    run = {"arms": {"x": "X", "y": "Y"}, "rates": {"below": 4.0, "above": 8.0}, "input_len": 3,
           "max_tokens": 2, "seconds": {"below": 2, "above": 3}, "repeats": 2, "capacity": 5.0}
    with pytest.raises(KeyboardInterrupt):
        admission.compare("test_admission", **run)
    assert not recorded
    found = admission.compare("test_admission", **run)
    del asked[5]
    assert asked == [("X", 8), ("Y", 8), ("X", 24), ("Y", 24), ("Y", 8), ("X", 8), ("Y", 24),
                     ("X", 24)]
    assert len(found) == 128 and set(found.capacity) == {5.0}
    assert found.groupby("load").seconds.unique().map(list).to_dict() == {"below": [2],
                                                                         "above": [3]}
    assert recorded == ["test_admission"] and not list(tmp_path.iterdir())


def test_a_loss_is_put_on_the_clock_of_the_requests(monkeypatch):
    class Front:
        lost_at = None

        def door(self, name):
            return name

        def lose(self):
            self.lost_at = time.perf_counter()

        def events(self):
            noted = [(0, 2), (0.5, 1), (2.5, 2)]
            now = self.lost_at or 0
            seen = noted if self.lost_at else noted[:1]
            return pd.DataFrame([{"at": now + at, "running": number} for at, number in seen])

    def ask(*arguments, **about):
        found = answers(*arguments, **about)
        time.sleep(0.3)
        return found

    monkeypatch.setattr(admission, "ask", ask)
    seen = admission.through_a_loss(Front(), ["a"] * 4, rate=2, max_tokens=2, after_s=0.1).iloc[0]
    assert seen.lost_s == pytest.approx(0.1, abs=0.05)
    assert seen.missed_s == pytest.approx(seen.lost_s + 0.5)
    assert seen.full_s == pytest.approx(seen.lost_s + 2.5)
