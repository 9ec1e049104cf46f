"""Counters of the kernel's own events stand in for the hardware's, which many machines lack."""

import math
import mmap
import os
import threading
from types import SimpleNamespace

import pytest

from helpers import perf_events, profile, supervisor

PAGES = 500
needs_perf = pytest.mark.skipif(bool(perf_events.why_not(perf_events.PAGE_FAULTS)),
                                reason="the kernel lets no one count here")


def touch():
    """Write to fresh pages: a fault each."""
    with mmap.mmap(-1, PAGES * mmap.PAGESIZE) as memory:
        memory.madvise(mmap.MADV_NOHUGEPAGE)
        for page in range(PAGES):
            memory[page * mmap.PAGESIZE] = 1


@needs_perf
def test_counts_events_of_this_process_and_of_threads_born_later():
    with perf_events.count([os.getpid()], perf_events.PAGE_FAULTS) as faults:
        before = faults()
        touch()
        own = faults() - before
        thread = threading.Thread(target=touch)
        thread.start()
        thread.join()
        both = faults() - before
    assert PAGES <= own < 2 * PAGES and both - own >= PAGES


@needs_perf
def test_handles_are_closed_and_a_process_that_is_gone_counts_nothing():
    before = len(os.listdir("/proc/self/fd"))
    with perf_events.count([2**22 + 1], perf_events.PAGE_FAULTS) as faults:
        assert faults() == 0
    with pytest.raises(ZeroDivisionError), perf_events.count([os.getpid()], (1, 2)):
        raise ZeroDivisionError
    assert len(os.listdir("/proc/self/fd")) == before


def test_an_event_that_no_machine_has():
    assert perf_events.why_not((0, 99))


def test_a_machine_without_counters_says_so(monkeypatch, capsys):
    monkeypatch.setattr(perf_events, "why_not", lambda: "no such file")
    with perf_events.missed_bytes(None) as missed:
        assert math.isnan(missed())
    assert "cache misses here (no such file)" in capsys.readouterr().out
    monkeypatch.setattr(profile, "current", lambda: profile.GPU)
    with perf_events.missed_bytes(None) as missed:
        assert math.isnan(missed())
    assert "the model runs on the GPU" in capsys.readouterr().out


@needs_perf
def test_bytes_are_lines(monkeypatch):
    monkeypatch.setattr(perf_events, "why_not", lambda: "")
    monkeypatch.setattr(supervisor, "session_pids", lambda pid: [os.getpid()])
    real = perf_events.count
    monkeypatch.setattr(perf_events, "count",
                        lambda pids: real(pids, perf_events.PAGE_FAULTS))
    with perf_events.missed_bytes(SimpleNamespace(pid=1)) as missed:
        touch()
        assert missed() >= 64 * PAGES
