"""Runs are recorded whole or not at all, read back as they were, and refused when damaged."""

import gzip
import hashlib
import json
import math
import os
import signal
import subprocess
import sys
import time
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from helpers import checkpoint, models, provenance, results, rows, run_file
from helpers.errors import LabError

NAN = float("nan")
SETTINGS = settings(deadline=None, max_examples=60,
                    suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture
def store(tmp_path, monkeypatch):
    """results/runs and data/recorded, in a folder of the test's own."""
    monkeypatch.setattr(results, "RUNS", tmp_path / "runs")
    monkeypatch.setattr(results, "RECORDED", tmp_path / "recorded")
    return tmp_path


def sample(count=3, **settings):
    """A table of `count` requests, the last of them failed."""
    good = {"sent_s": 0.1, "intended_s": NAN, "chunk_tokens": [1, 2, 1], "outcome": "ok",
            "error": "", "input_tokens": 5, "output_tokens": 4, "text": "Paris é\n\u2028",
            **rows.latencies([0.1, 0.2, 0.3], 4)}
    bad = {"sent_s": 0.2, "intended_s": NAN, **rows.failed("HTTP 500")}
    return rows.table([good] * (count - 1) + [bad], tool="client", settings=settings)


def same(value):
    """A value in a form that == compares: NaN, None and NA alike, arrays as lists."""
    if isinstance(value, (list, tuple, np.ndarray)):
        return [same(item) for item in value]
    if value is None or value is pd.NA or (isinstance(value, float) and math.isnan(value)):
        return "missing"
    return value


def assert_same(loaded, recorded):
    assert list(loaded.columns) == [*recorded.columns, *run_file.RUN_COLUMNS]
    for name in recorded.columns.drop("experiment"):
        assert loaded[name].dtype == recorded[name].dtype, name
        assert same(list(loaded[name])) == same(list(recorded[name])), name


def test_a_run_comes_back_as_it_was(store):
    table = sample(seed=7, rate=float("inf"))
    path = results.record("01_sample", table, note="lid closed")
    loaded = results.load("01_sample")
    assert_same(loaded, table)
    assert set(loaded.experiment) == {"01_sample"} and set(loaded.source) == {"yours"}
    assert set(loaded.run) == {path.stem} and str(loaded.time.dt.tz) == "UTC"
    header = loaded.attrs["headers"][path.stem]
    assert header["seed"] == 7 and header["about"]["note"] == "lid closed"
    assert header["about"]["settings"]["rate"] == "Infinity"
    assert header["machine"]["cores"] >= 1 and header["software"]["packages"]["torch"]


FLOATS = st.floats(allow_nan=True, allow_infinity=True)
ROWS = st.lists(st.fixed_dictionaries({
    "sent_s": FLOATS, "ttft_s": FLOATS, "itl_s": st.none() | st.lists(FLOATS, max_size=4),
    "chunk_tokens": st.none() | st.lists(st.integers(0, 9), max_size=4),
    "experiment": st.just(""), "output_tokens": st.integers(-2**53, 2**53), "ok": st.booleans(),
    "text": st.text(max_size=9),
    "error": st.none() | st.text(st.characters(), max_size=5)}), min_size=1, max_size=5)


@SETTINGS
@given(ROWS)
def test_any_table_comes_back_as_it_was(store, many):
    table = pd.DataFrame(many)
    path = results.record("any", table)
    try:
        assert all(json.loads(line, parse_constant=pytest.fail) for line in path.open("rb"))
        assert_same(results.load("any"), table)
    finally:
        path.unlink()


def test_each_run_is_a_file_of_its_own_and_old_ones_stay(store):
    first = results.record("x", sample())
    before = first.read_bytes()
    second = results.record("x", sample(2).assign(concurrency=4))
    assert first != second and first.read_bytes() == before
    loaded = results.load("x")
    assert list(loaded.groupby("run", sort=False).size()) == [3, 2]
    assert loaded.concurrency.isna().sum() == 3
    assert list(loaded.attrs["headers"]) == [first.stem, second.stem]


def test_recorded_runs_are_read_too_and_machines_can_be_picked(store):
    path = results.record("x", sample())
    text = path.read_text().replace(provenance.machine()["id"], "gpu-nvidia-h200")
    for place, write in (("h200/x/a.jsonl.gz", lambda p: p.write_bytes(gzip.compress(
            text.encode()))), ("x/b.jsonl", lambda p: p.write_text(text))):
        (store / "recorded" / place).parent.mkdir(parents=True)
        write(store / "recorded" / place)
    loaded = results.load("x")
    assert list(loaded.groupby("source").size()) == [6, 3]
    assert set(results.load("x", machine="gpu").machine) == {"gpu-nvidia-h200"}
    with pytest.raises(LabError, match="no run on a machine 'tpu'(.|\n)*gpu-nvidia-h200"):
        results.load("x", machine="tpu")


def test_a_run_that_ships_as_well_is_there_once(store):
    path = results.record("06_knee", sample())
    again = store / "recorded" / "cpu" / "06_knee" / path.name
    again.parent.mkdir(parents=True)
    again.write_bytes(path.read_bytes())
    assert set(results.load("06_knee").source) == {"yours"} and len(results.load("06_knee")) == 3


def test_the_requests_at_hand_stand_beside_the_recorded_ones(store, capsys):
    alone = results.beside("06_knee", sample(), machine="")
    assert len(alone) == 3 and alone.machine.str.startswith("this one (").all()
    assert "ships with the course yet" in capsys.readouterr().out
    old, new = (results.record("06_knee", sample(count)) for count in (4, 5))
    assert len(results.beside("06_knee", sample(), machine="")) == 3  # yours, not recorded
    (store / "recorded" / "h200" / "06_knee").mkdir(parents=True)
    for path in (old, new):
        path.rename(store / "recorded" / "h200" / "06_knee" / path.name)
    both = results.beside("06_knee", sample(), machine="")
    assert len(both) == 3 + 5 and both.machine.nunique() == 2
    assert len(results.beside("06_knee", sample(), machine="gpu-other")) == 3
    assert len(results.beside("05_other", sample(), instead="06_knee", machine="")) == 3 + 5
    assert len(results.beside("06_knee", sample(), instead="05_other", machine="")) == 3 + 5



def test_nothing_recorded_says_what_is_and_which_notebook_records_it(store, monkeypatch):
    monkeypatch.setattr(results, "ROOT", store)
    with pytest.raises(LabError, match="Nothing is recorded yet"):
        results.load("03_memory")
    results.record("02_clients", sample())
    with pytest.raises(LabError, match="Recorded so far: 02_clients"):
        results.load("03_memory")
    (store / "notebooks").mkdir()
    cell = {"source": 'results.record("03_memory", requests)'}
    (store / "notebooks" / "03_memory.ipynb").write_text(json.dumps({"cells": [cell]}))
    monkeypatch.setattr(results, "ROOT", store)
    with pytest.raises(LabError, match="Run notebooks/03_memory.ipynb: it records it"):
        results.load("03_memory")


def cut_row(lines):
    return [*lines[:2], lines[2][:40], *lines[3:]]


@pytest.mark.parametrize("damage, line, why", [
    (cut_row, 3, "not whole"),
    (lambda lines: lines[:-1], 4, "promises 3 requests and 2"),
    (lambda lines: [lines[0], b"7", *lines[2:]], 2, "not a request"),
    (lambda lines: [lines[0], b'{"sent_s": 1}', *lines[2:]], 2, "columns"),
    (lambda lines: [lines[0], b"\xff\xfe", *lines[2:]], 2, "not whole"),
    (lambda lines: lines[1:], 1, "header"),
    (lambda lines: [], 1, "not whole"),
])
def test_a_damaged_file_is_named_with_its_line(store, damage, line, why):
    results.record("x", sample())
    path = results.record("x", sample())
    path.write_bytes(b"\n".join(damage(path.read_bytes().splitlines())))
    with pytest.raises(LabError, match=f"{path.name} is damaged at line {line}: .*{why}") as raised:
        results.load("x")
    assert "delete it" in raised.value.fix


def test_a_damaged_recorded_file_can_be_had_back_from_git(store):
    path = store / "recorded" / "x" / "a.jsonl.gz"
    path.parent.mkdir(parents=True)
    path.write_bytes(gzip.compress(b"{}")[:-3])
    with pytest.raises(LabError, match="cannot be read(.|\n)*git checkout --"):
        results.load("x")


def test_what_cannot_be_recorded_is_refused_and_leaves_nothing(store):
    with pytest.raises(LabError, match="no requests to record"):
        results.record("x", sample().head(0))
    with pytest.raises(LabError, match="type object cannot be recorded"):
        results.record("x", sample(), odd=object())
    for name in ("", "a/b", "../x", ".x", "a b"):
        with pytest.raises(ValueError, match="no name of an experiment"):
            results.record(name, sample())
    assert not list(store.rglob("*.*"))


def test_a_folder_that_cannot_be_written_is_named(store):
    (store / "runs").write_text("a file where the folder should be")
    with pytest.raises(LabError, match="not writable(.|\n)*still in memory"):
        results.record("x", sample())


CHILD = """
import resource, sys, pathlib
from helpers import results
sys.path.insert(0, {tests!r})
from test_results import sample
results.RUNS = pathlib.Path({runs!r})
{body}
"""


def child(store, body):
    code = CHILD.format(tests=os.path.dirname(__file__), runs=str(store / "runs"), body=body)
    return subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)


def test_a_full_disk_is_said_and_leaves_nothing(store):
    """A limit on the size of a file makes the write itself fail, half done, as a full disk does."""
    process = child(store, """
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
try:
    results.record("x", sample(500))
except Exception as error:
    print(type(error).__name__, error)
""")
    said = process.communicate(timeout=60)[0]
    assert said.startswith("LabError") and "The disk is full" in said, said
    assert not list((store / "runs" / "x").iterdir())


def test_a_kill_at_any_moment_leaves_only_whole_runs(store):
    """SIGKILL while runs are written without a pause, at 12 different moments."""
    for turn in range(12):
        process = child(store, "print(1, flush=True)\nwhile True: results.record('x', sample(400))")
        process.stdout.readline()
        time.sleep(0.15 + 0.013 * turn)
        process.send_signal(signal.SIGKILL)
        process.wait()
    loaded = results.load("x")
    assert set(loaded.groupby("run").size()) == {400} and loaded.run.nunique() >= 12


def test_two_processes_at_once_lose_nothing(store):
    body = "for _ in range(20): results.record('x', sample(50))"
    processes = [child(store, body) for _ in range(2)]
    assert [process.wait(60) for process in processes] == [0, 0]
    assert list(results.load("x").groupby("run").size()) == [50] * 40
    assert not list((store / "runs").rglob("*.partial"))


def test_half_written_files_of_killed_processes_go_away(store):
    folder = results.record("x", sample()).parent
    old, new = folder / "old.partial", folder / "new.partial"
    for path in (old, new):
        path.write_text("half")
    os.utime(old, (0, 0))
    results.record("x", sample())
    assert not old.exists() and new.exists()


@pytest.mark.parametrize("cpu, gpu, expected", [
    ("AMD EPYC", None, "cpu-amd-epyc-2c"),
    ("Intel(R) Xeon(R) Platinum 8488C CPU @ 2.40GHz", None, "cpu-intel-xeon-platinum-8488c-2c"),
    ("AMD Ryzen 7 7840U w/ Radeon", None, "cpu-amd-ryzen-7-7840u-w-radeon-2c"),
    ("AMD EPYC 9654 96-Core Processor", "NVIDIA H200", "gpu-nvidia-h200"),
])
def test_machine_ids(monkeypatch, cpu, gpu, expected):
    monkeypatch.setattr(provenance, "processor", lambda: cpu)
    monkeypatch.setattr(provenance.profile, "gpu_name", lambda: gpu)
    monkeypatch.setattr(provenance.profile, "current", lambda: SimpleNamespace(name="gpu"))
    monkeypatch.setattr(provenance, "usable_cores", lambda: 2)
    assert provenance.machine()["id"] == expected


def fake_server(path, **flags):
    return SimpleNamespace(settings=(str(path), None, {"HF_TOKEN": "hf_abc"}, flags), name="engine",
                           command="HF_TOKEN=hf_abc vllm serve --port 8000", model="tiny",
                           cache_line="CPU KV cache size: 64 tokens")


def test_the_header_tells_the_engine_and_its_weights_and_no_secret(store, monkeypatch):
    monkeypatch.setattr(models, "cache_folder", lambda: store / "cache")
    (store / "tiny").mkdir()
    weights = store / "tiny" / "model.safetensors"
    weights.write_bytes(b"weights")
    path = results.record("x", sample(), server=fake_server(store / "tiny", max_num_seqs=8))
    assert "hf_abc" not in path.read_text()
    engine, = json.loads(path.open().readline())["header"]["engines"]
    assert engine["cache_line"] == "CPU KV cache size: 64 tokens"
    assert engine["flags"] == {"max_num_seqs": 8} and engine["command"].endswith("--port 8000")
    assert engine["sha256"]["model.safetensors"] == hashlib.sha256(b"weights").hexdigest()
    weights.write_bytes(b"others!")
    os.utime(weights, (1, 1))
    assert provenance.weights(store / "tiny")["sha256"] != engine["sha256"]


def test_a_hash_is_computed_once(store, monkeypatch):
    monkeypatch.setattr(models, "cache_folder", lambda: store / "cache")
    (store / "w.safetensors").write_bytes(b"weights")
    digest = provenance.file_hash(store / "w.safetensors")
    monkeypatch.setattr(provenance.hashlib, "file_digest", lambda *_: pytest.fail("hashed again"))
    assert provenance.file_hash(store / "w.safetensors") == digest


def test_weights_of_the_hub_and_of_a_shape_are_named_by_revision(tmp_path):
    assert provenance.weights(tmp_path / "models--a--b" / "snapshots" / "c0ffee") == {
        "revision": "c0ffee", "sha256": None}
    (tmp_path / checkpoint.RANDOM_WEIGHTS_NOTE).touch()
    assert provenance.weights(tmp_path)["revision"] == "random"


def test_folders_of_this_machine_are_cut_out():
    home, root = str(provenance.Path.home()), str(provenance.ROOT)
    assert provenance.without_home({"a": [f"{home}/x", f"{root}/data/y", f"/mnt{home}/z"]}) == {
        "a": ["~/x", "./data/y", f"/mnt{home}/z"]}


def test_recorded_data_stays_small():
    size = sum(path.stat().st_size for path in results.RECORDED.rglob("*") if path.is_file())
    assert size < 10e6, f"data/recorded holds {size / 1e6:.1f} MB, more than 10"


def test_quick_runs_are_not_recorded(monkeypatch, capsys):
    monkeypatch.setenv("LAB_QUICK", "1")
    requests = pd.DataFrame([{"ttft_s": 1.0}])
    assert results.record("quick", requests) is None
    assert "not recorded" in capsys.readouterr().out
