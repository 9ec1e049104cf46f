"""The MPS daemon ends in every case (a stand-in plays NVIDIA's program), and cores are halved."""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from owners import LIMIT_S

from helpers import engine, mps, profile, supervisor
from helpers.errors import LabError

FAKE = Path(__file__).with_name("mps_control.sh")
OWNER = """
import os, sys, time
from pathlib import Path
from helpers import engine, mps
engine.LOGS = Path("logs")
with mps.daemon() as daemon:
    server = daemon.ask("get_server_list").strip()
    print(daemon._process.pid, server, daemon._process.scratch, flush=True)
    {then}
"""


@pytest.fixture
def program(tmp_path, monkeypatch):
    """A folder on PATH with the stand-in; logs go to another."""
    monkeypatch.setattr(engine, "LOGS", tmp_path / "logs")
    folder = tmp_path / "bin"
    folder.mkdir()
    shutil.copy(FAKE, folder / mps.PROGRAM)
    monkeypatch.setenv("PATH", str(folder), prepend=os.pathsep)
    return folder


@pytest.fixture
def gpu(monkeypatch):
    monkeypatch.setattr(profile, "current", lambda: SimpleNamespace(name="gpu"))


def left(session, server, scratch):
    """What is still there of a daemon: its session, its server (a session of its own), its pipe."""
    alive = [] if supervisor.ended(server) else [f"server {server}"]
    return supervisor.session_pids(session) + alive + [scratch] * os.path.exists(scratch)


def parts(daemon):
    return daemon._process.pid, int(daemon.ask("get_server_list")), daemon._process.scratch


def test_it_answers_has_a_pipe_of_its_own_and_ends(program):
    daemon = mps.daemon()
    found = parts(daemon)
    assert daemon.running and os.path.isdir(daemon.env[mps.PIPE])
    assert daemon.env[mps.PIPE].startswith(found[2]) and len(left(*found)) >= 3
    assert daemon.clients() == [101, 102]
    with mps.daemon() as other:
        assert other.env[mps.PIPE] != daemon.env[mps.PIPE]
    daemon.stop()
    daemon.stop()
    assert not daemon.running and not left(*found) and daemon.clients() == []
    assert daemon.ask("get_server_list") is None


def test_it_ends_with_its_block_also_where_that_raises(program):
    with pytest.raises(ZeroDivisionError), mps.daemon() as daemon:
        found = parts(daemon)
        raise ZeroDivisionError
    assert not left(*found)


@pytest.mark.parametrize("then, number", [
    ("pass", None), ("raise SystemExit(3)", None), ("os._exit(0)", None),
    ("time.sleep(60)", signal.SIGKILL), ("time.sleep(60)", signal.SIGINT),
    ("time.sleep(60)", signal.SIGTERM)])
def test_it_ends_with_its_owner_however_that_ends(program, tmp_path, then, number):
    script = tmp_path / "owner.py"
    script.write_text(OWNER.format(then=then))
    with subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, text=True,
                          stderr=subprocess.DEVNULL, cwd=tmp_path) as owner:
        session, server, scratch = owner.stdout.readline().split()
        if number:
            owner.send_signal(number)
        owner.wait(LIMIT_S)
    start = time.monotonic()
    while still := left(int(session), int(server), scratch):
        assert time.monotonic() - start < LIMIT_S, still
        time.sleep(0.05)


@pytest.mark.parametrize("how", ["refuse", "deaf"])
def test_one_that_does_not_start_says_why_and_leaves_nothing(program, monkeypatch, how):
    monkeypatch.setenv("MPS_FAKE", how)
    before = set(Path("/tmp").glob(supervisor.PREFIX + "*"))
    with pytest.raises(LabError, match="did not start") as error:
        mps.daemon(start_limit_s=1)
    assert ("no CUDA device" if how == "refuse" else "daemon") in error.value.log
    assert set(Path("/tmp").glob(supervisor.PREFIX + "*")) <= before


def test_a_machine_without_the_program(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(LabError, match="is not on this machine"):
        mps.daemon()


# The way of a machine


def test_on_a_gpu_both_engines_are_clients_of_one_daemon(program, gpu, capsys, monkeypatch):
    with mps.ways() as way:
        assert way.word == "MPS" and way.arm == "two engines MPS"
        assert way.env["a"] == way.env["b"] == way.daemon.env
        found = parts(way.daemon)
        with monkeypatch.context() as patch:
            patch.setattr(supervisor, "session_pids", {7: [100, 101], 8: [90]}.get)
            seen = way.seen({"a": SimpleNamespace(pid=7), "b": SimpleNamespace(pid=8)})
        assert seen == {"a": "one of 2 MPS clients", "b": "none of 2 MPS clients"}
        assert mps.ways().daemon is way.daemon  # a cell that is run twice
    assert not left(*found) and way.env["a"][mps.PIPE] in capsys.readouterr().out
    with mps.ways() as new:
        assert new.daemon is not way.daemon and new.daemon.running


def test_on_a_gpu_without_mps_the_arm_repeats_the_other(tmp_path, gpu, monkeypatch, capsys):
    monkeypatch.setenv("PATH", str(tmp_path))
    way = mps.ways(("x", "y"))
    assert (way.word, way.env) == ("again", {"x": {}, "y": {}})
    assert "is not on this machine" in capsys.readouterr().out
    assert way.seen({"x": SimpleNamespace(pid=1)}) == {"x": "none of 0 MPS clients"}
    way.stop()


def test_on_a_cpu_each_has_its_half_of_the_cores(monkeypatch, capsys):
    monkeypatch.setattr(profile, "current", lambda: SimpleNamespace(name="cpu"))
    monkeypatch.setattr(mps, "physical_cores", lambda: [0, 1, 2, 3])
    with mps.ways() as way:
        bound = [env["VLLM_CPU_OMP_THREADS_BIND"] for env in way.env.values()]
    assert (way.word, way.arm, bound) == ("pinned", "two engines pinned", ["0,1", "2,3"])
    assert "analogy" in capsys.readouterr().out


def test_halves():
    assert mps.halves([0, 1]) == [[0], [1]]
    assert mps.halves([0, 2, 4, 6, 8]) == [[0, 2], [4, 6, 8]]
    assert mps.halves([5]) == [[5], [5]]
    assert mps.halves([0, 1, 2], 3) == [[0], [1], [2]]


def test_one_logical_cpu_a_physical_core(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1, 4, 5, 9})
    monkeypatch.setattr(mps, "CPUS", tmp_path)
    for cpu, core in {0: 0, 1: 1, 4: 0, 5: 1}.items():  # 9 is not listed: a core by itself
        folder = tmp_path / f"cpu{cpu}" / "topology"
        folder.mkdir(parents=True)
        (folder / "core_id").write_text(f"{core}\n")
        (folder / "physical_package_id").write_text("0\n")
    assert mps.physical_cores() == [4, 5, 9]


def test_compute_cores_are_read_from_the_kernel(tmp_path):
    core = min(os.sched_getaffinity(0))
    code = "import ctypes, time; ctypes.CDLL(None).prctl(15, b'VLLM::Worker'); time.sleep(60)"
    process = supervisor.start(["taskset", "-c", str(core), sys.executable, "-c", code],
                               env=os.environ, log_path=tmp_path / "log")
    try:
        start = time.monotonic()
        while mps.compute_cores(process) != [core]:
            assert time.monotonic() - start < LIMIT_S
            time.sleep(0.02)
        way = mps.Way("pinned", {})
        assert way.seen({"a": process}) == {"a": f"cores [{core}]"}
    finally:
        supervisor.stop(process)
