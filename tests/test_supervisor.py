"""The supervisor by itself, with the stand-in or a few lines of shell under it."""

import contextlib
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from conftest import STANDIN
from owners import LIMIT_S, Tree, free_port

from helpers import supervisor, watcher


@pytest.fixture
def start(tmp_path):
    """start(command) runs it under a supervisor; ended after the test."""
    started = []

    def run(*command, **env):
        started.append(supervisor.start(command, env=os.environ | env,
                                        log_path=tmp_path / "log", cwd=tmp_path))
        return started[-1]

    yield run
    for process in started:
        supervisor.stop(process)


@pytest.fixture
def start_engine(start):
    """start_engine(options) runs the stand-in: (process, what it has)."""

    def run(options="{}"):
        port = free_port()
        process = start(STANDIN, "serve", "model", "--host", "127.0.0.1", "--port", str(port),
                        "--standin", options)
        wait_until(lambda: len(supervisor.named(process.pid, "VLLM::")) == 2)
        return process, Tree(process.pid, port, os.getpid()).look()

    return run


def wait_until(true):
    end = time.monotonic() + LIMIT_S
    while not true():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_twenty_kills_in_a_row_leak_nothing(tmp_path, faults):
    owner = tmp_path / "owner.py"
    owner.write_text(f"""
import os, time
from helpers import supervisor, watcher
process = supervisor.start([{str(STANDIN)!r}, "serve", "model", "--host", "127.0.0.1", "--port",
                            os.environ["PORT"]], env=os.environ, log_path="log")
while len(supervisor.named(process.pid, "VLLM::")) < 2:
    time.sleep(0.01)
print(process.pid, flush=True)
time.sleep(60)
""")
    waits = []
    with ThreadPoolExecutor() as pool:
        for _ in range(20):
            port = free_port()
            with subprocess.Popen([sys.executable, owner], stdout=subprocess.PIPE, text=True,
                                  cwd=tmp_path, env=os.environ | {"PORT": str(port)}) as process:
                tree = Tree(int(process.stdout.readline()), port, process.pid).look()
                process.kill()
            waits.append(pool.submit(tree.seconds_until_gone))
    for wait in waits:
        faults.append(("SIGKILL of a script, in a row", "stand-in", wait.result()))


def test_stop_ends_all_of_it_and_may_be_called_again(start_engine, monkeypatch):
    process, tree = start_engine()
    supervisor.stop(process)
    assert not tree.left()
    monkeypatch.delattr(watcher, "end")  # its session's number may be another's by now
    supervisor.stop(process)


def test_one_that_ignores_sigterm_is_killed(start_engine):
    process, tree = start_engine('{"stubborn": 1}')
    supervisor.stop(process)
    assert process.returncode == 0 and not tree.left()


def test_a_grandchild_that_left_the_session_is_ended(start, tmp_path):
    process = start("bash", "-c", "(setsid sleep 61 & echo $! > new; mv new orphan); sleep 60")
    wait_until((tmp_path / "orphan").exists)
    orphan = int((tmp_path / "orphan").read_text())
    assert not supervisor.ended(orphan)
    supervisor.stop(process)
    assert supervisor.ended(orphan)


def test_files_that_nobody_of_the_tree_maps_stay(start_engine):
    stranger = Path(f"/dev/shm/psm_stranger_{os.getpid()}")
    stranger.write_bytes(bytes(4096))
    try:
        process, _ = start_engine()
        supervisor.stop(process)
        assert stranger.exists()
    finally:
        stranger.unlink()


def test_stop_at_once_leaves_no_folder(start):
    for _ in range(5):
        process = start("sleep", "60")
        supervisor.stop(process)
        assert not os.path.exists(process.scratch)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_to_the_supervisor_ends_the_tree(start_engine, number):
    process, tree = start_engine()
    process.send_signal(number)
    process.wait(LIMIT_S)
    assert not tree.left()


@pytest.mark.parametrize("command, status", [
    (("bash", "-c", "exit 3"), 3), (("bash", "-c", "kill -9 $$"), 128 + 9), (("no-such",), 127)])
def test_its_status_is_that_of_the_command(start, command, status):
    process = start(*command)
    assert process.wait(LIMIT_S) == status
    assert not os.path.exists(process.scratch)


def test_a_command_that_cannot_run_is_said_in_the_log(start, tmp_path):
    start("no-such").wait(LIMIT_S)
    assert "No such file or directory: 'no-such'" in (tmp_path / "log").read_text()
    assert "Traceback" not in (tmp_path / "log").read_text()


def test_a_forked_child_sees_that_it_runs_and_does_not_end_it(start_engine):
    process, tree = start_engine()
    child = os.fork()
    if child == 0:
        running = supervisor.exit_code(process) is None
        supervisor.stop(process)
        os._exit(0 if running else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert tree.lives


def test_it_hears_signals_that_the_thread_which_started_it_had_blocked(start):
    started = []

    def blocked():
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGCHLD, signal.SIGHUP})
        started.append(start("sleep", "60"))

    thread = threading.Thread(target=blocked)
    thread.start()
    thread.join()
    wait_until(lambda: supervisor.named(started[0].pid, "sleep"))
    supervisor.stop(started[0])
    assert started[0].returncode == 0  # it ended by itself


def test_an_owner_with_a_thousand_open_files(start):
    room = 1200
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < room:
        pytest.skip(f"this machine allows {hard} open files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, room), hard))
    with contextlib.ExitStack() as files:
        files.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        for _ in range(1100):
            files.enter_context(open(os.devnull))
        assert start("bash", "-c", "exit 3").wait(LIMIT_S) == 3


def test_the_first_variable_stays_the_first(start, tmp_path):
    """setproctitle finds its place from it, and vLLM sets TORCHINDUCTOR_CACHE_DIR itself."""
    start("env").wait(LIMIT_S)
    lines = (tmp_path / "log").read_text().splitlines()
    assert lines[0].partition("=")[0] == next(iter(os.environ))


def test_its_temporary_folder_leaves_room_for_a_socket_name(start, tmp_path, monkeypatch):
    deep = tmp_path / ("deep" * 20)
    deep.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(deep))
    process = start("bash", "-c", "echo $TMPDIR")
    process.wait(LIMIT_S)
    assert len(process.scratch) + 37 <= 107
    assert (tmp_path / "log").read_text().strip() == process.scratch


def test_a_supervisor_that_was_killed_leaves_nothing_after_stop(start_engine):
    process, tree = start_engine()
    supervisor.note(process)
    os.kill(tree.core(), signal.SIGKILL)  # so that nothing maps its file any more
    process.kill()
    process.wait()
    supervisor.stop(process)
    assert tree.seconds_until_gone() < LIMIT_S
