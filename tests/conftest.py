"""What several test files share: a stand-in for vLLM, a tiny model, one real engine, the table."""

import csv
import json
import signal
import struct
import sys
from collections import defaultdict
from pathlib import Path

import pytest

from helpers import engine as engine_process
from helpers import models, server

ROOT = Path(__file__).parents[1]
STANDIN = Path(__file__).with_name("standin.py")
FAULTS = pytest.StashKey()
# Started in the background or by nohup, this process ignores these, and so would all it starts.
signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:
    signal.signal(signal.SIGHUP, lambda number, frame: None)


@pytest.fixture(scope="session")
def engine():
    """One real engine with the profile's flags, for tests that only send it requests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("LAB_VLLM", raising=False)
        live = server.serve(models.prepare("smollm2-135m"), name="tests")
    yield live
    live.stop()


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory):
    """A folder that passes for a model: a config.json and one whole safetensors file."""
    return write_model(tmp_path_factory.mktemp("models") / "tiny")


def write_model(folder, name="model.safetensors"):
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text('{"model_type": "llama"}')
    header = json.dumps({"w": {"dtype": "BF16", "shape": [2, 2], "data_offsets": [0, 8]}}).encode()
    (folder / name).write_bytes(struct.pack("<Q", len(header)) + header + bytes(8))
    return folder


@pytest.fixture
def standin(monkeypatch, tmp_path, tiny_model):
    """serve() starts the stand-in; gives the model folder. Servers of the test end with it."""
    monkeypatch.setenv("LAB_VLLM", str(STANDIN))
    monkeypatch.setattr(engine_process, "LOGS", tmp_path / "logs")
    others = set(server._live)
    yield tiny_model
    for name in set(server._live) - others:
        server._live[name].stop()


@pytest.fixture(scope="session")
def faults(request):
    """A list to which tests add (kind, backend, seconds until all was gone, or None: lives on)."""
    return request.config.stash.setdefault(FAULTS, [])


def pytest_terminal_summary(terminalreporter, config):
    seconds = defaultdict(list)
    for kind, backend, took_s in config.stash.get(FAULTS, []):
        seconds[kind, backend].append(took_s)
    if not seconds:
        return
    rows = [{"kind": kind, "backend": backend, "count": len(took),
             "slowest_s": "lives on" if None in took else f"{max(took):.1f}"}
            for (kind, backend), took in seconds.items()]
    path = ROOT / "results" / "faults.csv"
    path.parent.mkdir(exist_ok=True)
    with open(path, "w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    terminalreporter.section("until nothing was left of an engine, in seconds")
    for row in rows:
        terminalreporter.line(f"{row['kind']:44} {row['backend']:9} "
                              f"{row['slowest_s']:>9}  ({row['count']})")


@pytest.fixture(autouse=True)
def no_figures_left():
    """Close what a test drew; most tests never load matplotlib."""
    yield
    if pyplot := sys.modules.get("matplotlib.pyplot"):
        pyplot.close("all")
