"""Waiting for a core: the arithmetic on made-up readings, and the control on this machine."""

import os
import shutil
import time

import pandas as pd
import pytest

from helpers import runqueue
from helpers.errors import LabError


def reading(**threads):
    """{name: (pid, tid, run, wait)} in seconds."""
    index = pd.MultiIndex.from_tuples([t[:2] for t in threads.values()], names=["pid", "tid"])
    return pd.DataFrame([(name.split("_")[0], int(1e9 * run), int(1e9 * wait))
                         for name, (_, _, run, wait) in threads.items()],
                        index=index, columns=runqueue.COLUMNS)


def test_share_is_waiting_over_running_and_waiting():
    before = reading(core_1=(1, 1, 1, 1), core_2=(1, 2, 5, 5), api=(9, 9, 1, 0), gone=(8, 8, 9, 9))
    after = reading(core_1=(1, 1, 4, 2), core_2=(1, 2, 5, 5), api=(9, 9, 2, 0), core_3=(1, 3, 1, 3))
    found = runqueue.delay(before, after)
    assert found.run_s["core"] == pytest.approx(4) and found.wait_s["core"] == pytest.approx(4)
    assert found.share["core"] == pytest.approx(0.5) and found.share["api"] == 0
    assert found.threads.to_dict() == {"api": 1, "core": 3}


def test_a_process_that_slept_has_no_share():
    same = reading(core=(1, 1, 1, 1))
    assert pd.isna(runqueue.delay(same, same).share["core"])


def test_parse():
    assert runqueue.parse("413331 17 1\n") == (413331, 17)
    for bad in ("", "1 2", "a b c"):
        with pytest.raises(ValueError):
            runqueue.parse(bad)


def test_it_reads_its_own_threads_and_skips_what_has_ended():
    found = runqueue.read([os.getpid(), 2**22 - 1])
    assert (os.getpid(), os.getpid()) in found.index
    start = time.process_time()
    while time.process_time() < start + 0.1:
        pass
    used = runqueue.delay(found, runqueue.read([os.getpid()]))
    assert used.run_s.sum() > 0.09


def test_no_schedstat_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(runqueue, "PROC", tmp_path)
    with pytest.raises(LabError, match="does not say"):
        runqueue.read([1])


def test_two_loops_on_a_core_wait_and_end():
    assert runqueue.control(4, seconds=0.4) > 0.5  # three of four wait, whatever else runs


def test_loops_end_when_the_reading_fails(monkeypatch):
    started, popen = [], runqueue.subprocess.Popen
    monkeypatch.setattr(runqueue.subprocess, "Popen",
                        lambda *a, **k: started.append(popen(*a, **k)) or started[-1])
    monkeypatch.setattr(runqueue, "read", lambda pids: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        runqueue.control(2, seconds=30)
    assert len(started) == 2 and all(one.poll() is not None for one in started)


def test_runqlat_is_not_there(monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(LabError, match="runqlat"):
        runqueue.runqlat()


def test_runqlat_prints_its_histogram_or_why_not(tmp_path, monkeypatch):
    tool = tmp_path / "runqlat"
    tool.write_text("#!/bin/sh\necho \"usecs $1 $2\"\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert runqueue.runqlat(1) == "usecs 1 1"
    tool.write_text("#!/bin/sh\necho no BPF >&2; exit 1\n")
    with pytest.raises(LabError, match="may not look"):
        runqueue.runqlat(1)
