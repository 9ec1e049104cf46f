"""Profiling around a load, with made-up engines that write made-up traces."""

import gzip
import json
import os
import time

import pandas as pd
import pytest
from test_trace import gpu

from helpers import profiling, runqueue, supervisor
from helpers.errors import LabError


class Engine:
    """What profiling needs of a Server; writes a trace when it is told to stop."""

    def __init__(self, folder, name, *, writes=True):
        self.name, self.pid, self.writes, self.asked = name, os.getpid(), writes, []
        self.folder, self.steps = folder / name, 0
        self.folder.mkdir()
        self.settings = ("", None, {}, {"profiler_config": json.dumps(
            {"torch_profiler_dir": str(self.folder)})})

    def metrics(self):
        return {profiling.COUNTERS["steps"]: self.steps, profiling.COUNTERS["queue_s"]: 0.5}

    def _request(self, method, path):
        self.asked.append(path)
        if path == "/stop_profile" and self.writes:
            (self.folder / "1.pt.trace.json.gz").write_bytes(
                gzip.compress(json.dumps(gpu()).encode()))

    def log_tail(self, lines):
        return "its log"


@pytest.fixture()
def pair(tmp_path, monkeypatch):
    # each engine: this process, as if it had one thread that ran for 1 s more at each reading
    seconds = iter(range(100))
    monkeypatch.setattr(supervisor, "session_pids", lambda pid: [pid])
    monkeypatch.setattr(runqueue, "read", lambda pids: pd.DataFrame(
        [("VLLM::EngineCor", 10**9 * next(seconds), 0), ("vllm", 5, 5)],
        index=pd.MultiIndex.from_tuples([(1, 1), (2, 2)]), columns=runqueue.COLUMNS))
    return {name: Engine(tmp_path, name) for name in "ab"}


def load(servers):
    def work():
        for engine in servers.values():
            engine.steps += 7
        rows = pd.DataFrame({"engine": ["a", "b", "a", "b"], "outcome": "ok"})
        rows.attrs.update(wall_s=1.0, client_cpu_s=0.1)
        return rows
    return work


def test_watched_has_what_rose_meanwhile(pair):
    rows = profiling.watched(pair, load(pair))
    assert set(rows.steps) == {7} and set(rows.queue_s) == {0}
    assert rows.prefill_s.isna().all()  # a release without that counter
    assert (rows.core_run_s > 0).all() and set(rows.core_wait_s) == {0}
    assert set(rows.host_run_s) == {0}


def test_a_kernel_that_does_not_count_leaves_the_rest(pair, monkeypatch):
    def missing(pids):
        raise LabError("This kernel does not say how long threads wait for a core.")
    monkeypatch.setattr(runqueue, "read", missing)
    rows = profiling.watched(pair, load(pair))
    assert set(rows.steps) == {7} and rows.core_wait_s.isna().all()


@pytest.mark.parametrize("first", [False, True])
def test_on_and_off_is_both_with_spans_once_an_engine(pair, first):
    rows = profiling.on_and_off(pair, load(pair), first=first)
    assert rows.profiled.tolist() == [first] * 4 + [not first] * 4
    lengths = rows.groupby(["profiled", "engine"]).spans.apply(lambda s: sorted(map(len, s)))
    assert lengths[True, "a"] == lengths[True, "b"] == [0, 4]
    assert lengths[False, "a"] == [0, 0]
    assert rows.attrs == {"wall_s": 2.0, "client_cpu_s": 0.2}
    spans = profiling.spans(rows.assign(arm="two engines", repeat=0))
    assert len(spans) == 8 and (spans.kind == "decode").sum() == 6
    assert spans.beside_s.iloc[1] == pytest.approx(35e-6, abs=1e-6)  # both have the same times
    for engine in pair.values():
        assert engine.asked == ["/start_profile", "/stop_profile"]


def test_an_interrupted_load_leaves_no_profiler_running(pair):
    def interrupted():
        raise KeyboardInterrupt
    with pytest.raises(KeyboardInterrupt):
        profiling.on_and_off(pair, interrupted, first=True)
    assert all(engine.asked[-1] == "/stop_profile" for engine in pair.values())


def test_an_old_trace_is_not_taken_for_a_new_one(tmp_path, pair):
    profiling.on_and_off(pair, load(pair))
    pair["b"].writes = False
    with pytest.raises(LabError, match="wrote no trace"):
        profiling.on_and_off(pair, load(pair))


def test_the_newest_trace_is_taken(pair):
    for age, name in ((100, "old"), (0, "new")):
        path = pair["a"].folder / f"{name}.pt.trace.json.gz"
        path.write_bytes(b"")
        os.utime(path, (time.time() - age,) * 2)
    assert profiling.newest(pair["a"]).name.startswith("new")


def test_an_engine_without_the_flag_says_so(pair):
    pair["a"].settings[3].clear()
    with pytest.raises(LabError, match="not started to be profiled"):
        profiling.newest(pair["a"])


def test_the_flag_is_json_with_a_folder_of_its_own():
    one, two = (json.loads(profiling.flags(name)["profiler_config"]) for name in ("a b", "c"))
    assert one["profiler"] == "torch" and one["ignore_frontend"]
    assert one["torch_profiler_dir"] != two["torch_profiler_dir"]
    assert " " not in one["torch_profiler_dir"]


def test_what_ships_is_read_with_no_engine():
    for rows in profiling.recorded().values():
        assert {"arm", "engine", "part", "start_s", "dur_s"} <= set(rows.columns) and len(rows)
        assert (rows.dur_s >= 0).all() and rows.part.nunique() > 2
