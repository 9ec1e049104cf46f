"""The noisy neighbour: works when told, rests when told, crashes alone, ends with its owner."""

import os
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest

from helpers import neighbour, supervisor
from helpers.errors import LabError


@pytest.fixture(scope="module")
def one():
    way = neighbour.Way("alone", {}, sorted(os.sched_getaffinity(0))[:1])
    made = neighbour.Neighbour("test", way)
    yield made
    made.stop()
    assert not supervisor.session_pids(made.process.pid)


def cpu_s(one):
    """CPU seconds of its processes so far."""
    total = 0
    for pid in supervisor.session_pids(one.process.pid):
        with open(f"/proc/{pid}/stat") as stat:
            total += sum(map(int, stat.read().rpartition(")")[2].split()[11:13]))
    return total / os.sysconf("SC_CLK_TCK")


@pytest.mark.parametrize("kind", neighbour.KINDS)
def test_it_does_what_it_is_told_and_counts_it(one, kind):
    with one.busy(kind) as took:
        time.sleep(0.1)
    assert took["kind"] == kind and took["passes"] > 0 and took["seconds"] > 0.1
    assert (took["bytes"] > 0) == (kind != "arithmetic")


@pytest.mark.parametrize("kind", ["none", "none again"])
def test_it_rests_where_there_is_nothing_to_do(one, kind):
    one.wait()
    before = cpu_s(one)
    with one.busy(kind) as took:
        time.sleep(0.3)
    assert took["passes"] == 0 and cpu_s(one) - before < 0.1


def test_it_stays_on_its_cores(one):
    one.wait()
    worker = max(supervisor.session_pids(one.process.pid))
    assert os.sched_getaffinity(worker) == set(sorted(os.sched_getaffinity(0))[:1])


def test_an_exception_in_between_leaves_it_at_rest(one):
    with pytest.raises(ZeroDivisionError), one.busy("arithmetic"):
        raise ZeroDivisionError
    before = cpu_s(one)
    time.sleep(0.3)
    assert cpu_s(one) - before < 0.1


def test_it_is_given_memory(one):
    assert one.hold(2**20) == {"held": True, "why": ""}
    refused = one.hold(2**60)
    assert not refused["held"] and refused["why"]


def test_a_fault_ends_it_and_says_how(one):  # the last one that needs it alive
    assert one.fault() == {"the neighbour": "SIGSEGV"}
    with pytest.raises(LabError, match="did not answer to 'memory'"):
        one.ask("memory", timeout_s=5)


def test_it_ends_with_its_owner():
    code = ("import os, time; from helpers import neighbour\n"
            "one = neighbour.Neighbour('owned', neighbour.Way('x', {}, [min("
            "os.sched_getaffinity(0))]))\n"
            "print(one.process.pid, flush=True); time.sleep(60)")
    owner = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    session = int(next(line for line in owner.stdout if line.strip().isdigit()))
    owner.kill()
    owner.wait()
    end = time.monotonic() + 15
    while supervisor.session_pids(session) and time.monotonic() < end:
        time.sleep(0.1)
    assert not supervisor.session_pids(session)


@pytest.fixture
def gpu(monkeypatch):
    monkeypatch.setattr(neighbour.profile, "current", lambda: SimpleNamespace(name="gpu"))


def test_ways_of_a_gpu_with_mps(gpu, monkeypatch):
    daemon = SimpleNamespace(env={"CUDA_MPS_PIPE_DIRECTORY": "/pipe"})
    monkeypatch.setattr(neighbour.mps, "daemon", lambda: daemon)
    found = neighbour.ways()
    assert found["shared"].engine_env == found["shared"].env == {}
    split = found["split"]
    assert split.daemon is daemon and split.mechanism == "MPS"
    assert split.engine_env == daemon.env | {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "50"}
    assert split.env == split.engine_env | {"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=8G"}


def test_a_gpu_without_mps_says_so_and_goes_on(gpu, monkeypatch, capsys):
    def none():
        raise LabError("no MPS here")
    monkeypatch.setattr(neighbour.mps, "daemon", none)
    found = neighbour.ways()
    assert found["split"].engine_env == {} and "again" in found["split"].word
    assert "no MPS here" in capsys.readouterr().out


def test_ways_of_a_cpu(monkeypatch, capsys):
    monkeypatch.setattr(neighbour.profile, "current", lambda: SimpleNamespace(name="cpu"))
    found = neighbour.ways()
    assert list(found) == ["shared", "split"] and all(way.cores for way in found.values())
    assert "split: engine on cores" in capsys.readouterr().out
    mine = found["split"].engine_env["VLLM_CPU_OMP_THREADS_BIND"].split(",")
    assert not {int(core) for core in mine} & set(found["split"].cores) or len(mine) == 1
