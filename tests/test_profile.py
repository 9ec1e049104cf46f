"""The profile: chosen once, for a reason that is said, and overridden by two variables."""

import dataclasses
import os
import subprocess

import pytest

from helpers import profile
from helpers.errors import LabError


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    """No choice made yet, nothing asked for, no GPU."""
    for name in ("LAB_PROFILE", "LAB_MODEL", "LAB_QUICK"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(profile.shutil, "which", lambda name: None)
    profile.current.cache_clear()
    yield
    profile.current.cache_clear()


@pytest.fixture
def gpu(monkeypatch, tmp_path):
    """gpu(script) is an nvidia-smi that runs a line of shell."""

    def put(script="echo NVIDIA H100"):
        tool = tmp_path / "nvidia-smi"
        tool.write_text(f"#!/bin/sh\necho >> {tmp_path}/asked\n{script}\n")
        tool.chmod(0o755)
        monkeypatch.setattr(profile.shutil, "which", lambda name: str(tool))
        monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
        return tmp_path / "asked"

    return put


def test_no_gpu(capsys):
    chosen = profile.current()
    assert (chosen.name, chosen.model) == ("cpu", "smollm2-135m")
    assert chosen.reason in capsys.readouterr().out and "no NVIDIA driver" in chosen.reason


def test_quick_takes_less_and_says_so(monkeypatch, capsys):
    monkeypatch.setenv("LAB_QUICK", "1")
    chosen = profile.current()
    assert chosen.repeats == 1 and chosen.num_prompts < profile.CPU.num_prompts
    assert chosen.load_seconds < profile.CPU.load_seconds
    assert chosen.rates == profile.CPU.rates[:1]
    assert len(chosen.concurrencies) == 2 and chosen.model == "smollm2-135m"
    assert "not results" in capsys.readouterr().out


def test_a_gpu(gpu, monkeypatch):
    gpu()
    monkeypatch.setattr(profile, "_cpu_build", lambda: False)
    chosen = profile.current()
    assert (chosen.name, chosen.model) == ("gpu", "Qwen/Qwen3-0.6B")
    assert "NVIDIA H100" in chosen.reason


def test_a_gpu_but_an_engine_for_cpus(gpu, monkeypatch):
    gpu()
    monkeypatch.setattr(profile, "_cpu_build", lambda: True)
    assert profile.current().name == "cpu" and "CPU build" in profile.current().reason


@pytest.mark.parametrize("script", ["exit 9", "echo", "kill -9 $$"])
def test_a_driver_that_does_not_work(gpu, script):
    gpu(script)
    assert profile.current().name == "cpu"


def test_a_driver_that_hangs(gpu, monkeypatch):
    gpu()

    def hang(command, **options):
        raise subprocess.TimeoutExpired(command, options["timeout"])

    monkeypatch.setattr(profile.subprocess, "run", hang)
    assert profile.current().name == "cpu"


def test_it_decides_once(gpu, monkeypatch, capsys):
    asked = gpu()
    first = profile.current()
    monkeypatch.setenv("LAB_PROFILE", "gpu")
    assert profile.current() is first
    assert asked.read_text().count("\n") == 1
    assert capsys.readouterr().out.count("Profile") == 1


@pytest.mark.parametrize("name", ["cpu", "gpu"])
def test_lab_profile(name, monkeypatch):
    monkeypatch.setenv("LAB_PROFILE", name)
    assert profile.current().name == name
    assert f"LAB_PROFILE={name}" in profile.current().reason


@pytest.mark.parametrize("name", ["tpu", "CPU", " "])
def test_a_wrong_lab_profile(name, monkeypatch):
    monkeypatch.setenv("LAB_PROFILE", name)
    with pytest.raises(LabError, match="LAB_PROFILE is") as caught:
        profile.current()
    assert caught.value.cause and "cpu or gpu" in caught.value.fix


def test_lab_model(monkeypatch, capsys):
    monkeypatch.setenv("LAB_MODEL", "shape:Qwen3-0.6B")
    assert profile.current().model == "shape:Qwen3-0.6B"
    assert "Random weights" in capsys.readouterr().out


def test_it_cannot_be_changed():
    with pytest.raises(dataclasses.FrozenInstanceError):
        profile.current().name = "gpu"


def test_both_profiles_have_loads_that_fit_their_engine():
    for chosen in (profile.CPU, profile.GPU):
        flags = chosen.engine_flags
        assert chosen.input_len + chosen.output_len < flags["max_model_len"]
        assert max(chosen.concurrencies) <= flags["max_num_seqs"]
        assert chosen.concurrency in chosen.concurrencies
