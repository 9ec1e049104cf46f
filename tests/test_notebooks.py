"""Every notebook, stub and solution both, through nbval on the real engine; nothing runs after."""

import re
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import nbformat
import psutil
import pytest
from nbformat import v4

from helpers.make.leftovers import Watch

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOKS = [*sorted(ROOT.glob("notebooks/*.ipynb")), *sorted(ROOT.glob("labs/*.ipynb"))]
SHARED = Path("/dev/shm")
CELL_LIMIT_S = 600
WATCHES = []  # one of each notebook that has been started


def nbval(path, watch):
    """Run a notebook as `pytest --nbval-lax` does; (exit status, what it printed).

    The kernel is killed at the end, as nbval does: engines have to notice by themselves.
    """
    command = [sys.executable, "-m", "pytest", "--nbval-lax", "--nbval-current-env", "-x", "-q",
               f"--nbval-cell-timeout={CELL_LIMIT_S}", "--nbval-kernel-startup-timeout=120",
               "-p", "no:cacheprovider", str(path)]
    with tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen(command, cwd=ROOT, text=True, stdout=output,
                                   stderr=output, stdin=subprocess.DEVNULL,
                                   env=watch.env | {"LAB_QUICK": "1"})
        try:
            while process.poll() is None:
                watch.look()
                time.sleep(1)
        finally:
            process.kill()  # if this test is interrupted; the kernel then ends by itself
            process.wait()
        output.seek(0)
        return process.returncode, re.sub(r"\x1b\[[0-9;]*m", "", output.read())


def assert_nothing_runs(watch, seconds=10):
    """No process of the notebook's and its engines is left, no port, and no OpenMP file."""
    left = watch.wait_gone(seconds)
    watch.end()
    assert not left, f"still running {seconds} s after the kernel was killed: {left}"
    held = still_listening(watch)
    assert not held, f"still listening: {held}"
    shared = [file for pid in watch.pids for file in SHARED.glob(f"__KMP_REGISTERED_LIB_{pid}_*")]
    assert not shared, f"left in shared memory: {shared}"


def still_listening(watch):
    """{port: process id} of the watch's ports that somebody listens on who is of no other watch.

    Two notebooks run side by side, and the one may take a port that the other has given up.
    """
    listening = {c.laddr.port: c.pid for c in psutil.net_connections("tcp")
                 if c.status == psutil.CONN_LISTEN and c.laddr.port in watch.ports}
    theirs = set().union(*(other.look() for other in WATCHES if other is not watch))
    return {port: pid for port, pid in listening.items() if pid not in theirs}


def run(path):
    """(exit status, what nbval printed, its watch, an AssertionError if anything was left)."""
    watch = Watch()
    WATCHES.append(watch)
    status, printed = nbval(path, watch)
    try:
        assert_nothing_runs(watch)
    except AssertionError as error:
        return status, printed, watch, error
    return status, printed, watch, None


@pytest.fixture(scope="module")
def runs(request):
    """{path: future of run(path)} of the notebooks chosen, two at a time, the last lesson first."""
    chosen = [item.callspec.params["path"] for item in request.session.items
              if getattr(item, "function", None) is test_notebook]
    with ThreadPoolExecutor(2) as pool:
        yield {path: pool.submit(run, path) for path in reversed(chosen)}


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook(path, runs):
    status, printed, watch, error = runs[path].result()
    assert status == 0, f"{path.name} failed:\n{printed[-6000:]}"
    source = path.read_text(encoding="utf-8")
    starts_engine = "server.serve(" in source or "experiment.start(" in source
    assert ("VLLM::EngineCore" in watch.names) == starts_engine  # the watch sees what there is
    if error:
        raise error


def make(path, *sources):
    cells = [v4.new_code_cell(source) for source in sources]
    nbformat.write(v4.new_notebook(cells=cells, metadata={
        "kernelspec": {"name": "python3", "display_name": "Python", "language": "python"}}), path)
    return path


def test_a_failing_cell_fails_the_test_and_shows_its_output(tmp_path):
    path = make(tmp_path / "bad.ipynb", "1", "raise ValueError('out of tea')", "print('later')")
    watch = Watch()
    status, printed = nbval(path, watch)
    assert status == 1 and "ValueError: out of tea" in printed and "later" not in printed
    assert_nothing_runs(watch)


def test_a_process_that_outlives_the_kernel_fails_the_test(tmp_path):
    path = make(tmp_path / "messy.ipynb",
                "import subprocess, sys\nsubprocess.Popen([sys.executable, '-m', 'http.server', "
                "'0', '--bind', '127.0.0.1'], start_new_session=True)\nimport time; time.sleep(1)")
    watch = Watch()
    assert nbval(path, watch)[0] == 0
    with pytest.raises(AssertionError, match="still running 2 s after"):
        assert_nothing_runs(watch, seconds=2)
    assert not watch.wait_gone() and watch.ports


def test_a_port_that_another_notebook_took_over_is_not_left_behind(monkeypatch):
    ours, theirs = Watch(), Watch()
    listener = subprocess.Popen([sys.executable, "-u", "-m", "http.server", "0", "--bind",
                                 "127.0.0.1"], env=theirs.env, text=True, stdout=subprocess.PIPE)
    try:
        ours.ports.add(port := int(re.search(r"port (\d+)", listener.stdout.readline())[1]))
        assert still_listening(ours) == {port: listener.pid}
        monkeypatch.setattr(sys.modules[__name__], "WATCHES", [theirs])
        assert not still_listening(ours)
    finally:
        listener.kill()
        listener.communicate()
