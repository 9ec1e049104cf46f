"""The machine, the preflight and the first memory formula."""

import math
import os
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest

from helpers import command, machine, memory, preflight, profile
from helpers.errors import LabError


@pytest.mark.parametrize(("bits", "gigabytes"), [(16, 140), (8, 70), (4, 35)])
def test_weights_of_70_billion_parameters(bits, gigabytes):
    assert memory.weight_bytes(70e9, bits=bits) == gigabytes * 1e9


@pytest.mark.parametrize(("parameters", "bits"), [(-1, 16), (1, 0), (1, -4)])
def test_weights_that_cannot_be(parameters, bits):
    with pytest.raises(LabError, match="not a model"):
        memory.weight_bytes(parameters, bits=bits)


def test_the_machine_is_described():
    table = machine.describe()["this machine"]
    assert table["cores"] >= 1 and "GiB" in table["memory"]
    assert machine.processor() and str(machine.cores()) in machine.name()


def test_bandwidth_is_a_rate_that_memory_can_have():
    assert 1e8 < machine.memory_bandwidth(repeats=1) < 1e13


def test_memory_of_an_engine_is_that_of_its_processes(monkeypatch):
    child = subprocess.Popen([sys.executable, "-c", "x = bytearray(2**27); input()"],
                             stdin=subprocess.PIPE)
    try:
        time.sleep(1)
        assert 2**27 < machine.engine_memory(SimpleNamespace(pid=child.pid)) < 2**28
    finally:
        child.kill()
        child.wait()
    monkeypatch.setattr(profile, "current", lambda: profile.GPU)
    answer = SimpleNamespace(stdout="3\n9\n")
    monkeypatch.setattr(machine.subprocess, "run", lambda *_, **__: answer)
    assert machine.engine_memory(None) == 3 * 2**20


def test_preflight_finds_what_is_here():
    table = preflight.check()
    assert set(table.loc[["Python", "vLLM", "guidellm", "lm_eval", "model"], "found"]) == {"✓"}
    assert (table.loc[table["found"] == "✓", "what to do"] == "").all()


def test_preflight_says_what_to_do_about_what_is_missing(monkeypatch):
    def no_engine():
        raise LabError("The command vllm is not installed here.")

    monkeypatch.setattr(command, "vllm_executable", no_engine)
    monkeypatch.setattr(preflight, "sys", SimpleNamespace(version_info=(3, 10, 1)))
    monkeypatch.setattr(preflight.shutil, "disk_usage", lambda _: SimpleNamespace(free=2**20))
    table = preflight.check()
    for missing in ("Python", "vLLM", "disk"):
        assert table.loc[missing, "found"] == "✗" and table.loc[missing, "what to do"]


def test_preflight_with_a_hub_model(monkeypatch):
    chosen = profile.Profile(**{f: getattr(profile.CPU, f) for f in profile.CPU.__slots__}
                             | {"model": "Qwen/Qwen3-0.6B"})
    monkeypatch.setattr(profile, "current", lambda: chosen)
    assert preflight.check().loc["model", "what"] == "Qwen/Qwen3-0.6B"


@pytest.mark.parametrize(("capability", "found"), [("8.0", False), ("8.9", True), ("9.0", True)])
def test_an_fp8_cache_on_a_gpu_depends_on_its_generation(monkeypatch, capsys, capability, found):
    monkeypatch.setattr(profile, "current", lambda: profile.GPU)
    monkeypatch.setattr(machine.subprocess, "run",
                        lambda *_, **__: SimpleNamespace(stdout=f"{capability}\n"))
    machine.fp8_cache.cache_clear()
    assert machine.fp8_cache() == found
    machine.fp8_cache.cache_clear()
    assert ("No FP8 cache" in capsys.readouterr().out) != found


def test_an_fp8_cache_on_a_cpu_depends_on_its_flags(monkeypatch):
    monkeypatch.setattr(profile, "current", lambda: profile.CPU)
    for flags, found in (("flags : avx2", False), ("flags : avx2 avx512f", True)):
        monkeypatch.setattr(machine.Path, "read_text", lambda _, flags=flags: flags)
        machine.fp8_cache.cache_clear()
        assert machine.fp8_cache() == found
    machine.fp8_cache.cache_clear()


def test_a_gpu_whose_memory_cannot_be_read_says_so(monkeypatch):
    monkeypatch.setattr(profile, "current", lambda: profile.GPU)
    monkeypatch.setattr(machine.subprocess, "run", lambda *_, **__: SimpleNamespace(
        returncode=1, stdout="", stderr="CUDA out of memory"))
    with pytest.raises(LabError, match="could not be read(.|\n)*CUDA out of memory"):
        machine.memory_bandwidth()


def test_gpu_busy_leaves_out_what_speaks_of_the_time_before(monkeypatch, tmp_path):
    fake = tmp_path / "nvidia-smi"
    fake.write_text("#!/bin/sh\nfor n in 1 2 3 4 5; do echo 0; sleep 0.02; done\n"
                    "while echo 100; do sleep 0.02; done\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(machine.profile, "current", lambda: SimpleNamespace(name="gpu"))
    monkeypatch.setattr(machine, "SAMPLE_S", 0.6)
    with machine.gpu_busy() as busy:
        start = time.perf_counter()
        time.sleep(1.2)
        end = time.perf_counter()
    assert busy(start, end) == 1, "the zeros are of the time before"
    assert 0 < busy(start, start + 0.5) < 1, "a short turn has no others"
    assert math.isnan(busy(end + 10, end + 11))


def test_gpu_busy_is_unknown_without_a_gpu(monkeypatch):
    monkeypatch.setattr(machine.profile, "current", lambda: SimpleNamespace(name="cpu"))
    with machine.gpu_busy() as busy:
        assert math.isnan(busy(0, math.inf))
