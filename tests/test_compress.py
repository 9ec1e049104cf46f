"""Checkpoints made by a stand-in for llmcompressor: cached by content, whole or not there."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from safetensors.numpy import save_file

from helpers import compress, models
from helpers.errors import LabError

CONFIG = {"model_type": "llama", "num_hidden_layers": 1, "hidden_size": 128,
          "num_attention_heads": 2, "num_key_value_heads": 1, "intermediate_size": 256,
          "vocab_size": 100, "tie_word_embeddings": True, "architectures": ["LlamaForCausalLM"]}
WORKER = """
import shutil, sys
source, target, recipe = sys.argv[1:]
print("Compressing", flush=True)
shutil.copy(source + "/config.json", target)
shutil.copy(source + "/model.safetensors", target)
open(target + "/recipe", "w").write(recipe)
"""


@pytest.fixture
def model(monkeypatch, tmp_path):
    """A small model, an empty cache, and a worker that copies."""
    monkeypatch.setenv("LAB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(compress, "environment", lambda: Path(sys.executable))
    monkeypatch.setattr(compress, "LOGS", tmp_path / "logs")
    worker(monkeypatch, tmp_path, WORKER)
    return write(tmp_path / "model", {"a": np.arange(6.0), "b": np.zeros((2, 3), np.float16)})


def write(folder, tensors, **metadata):
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(CONFIG))
    (folder / "tokenizer.json").write_text("{}")
    save_file(tensors, folder / "model.safetensors", metadata=metadata)
    return folder


def worker(monkeypatch, tmp_path, text):
    monkeypatch.setattr(compress, "WORKER", tmp_path / "worker.py")
    compress.WORKER.write_text(text)


def test_made_once_with_the_tokenizer_and_the_recipe(model, monkeypatch, capfd):
    made = compress.make(model, scheme="INT8")
    assert "INT8 of model: done after" in capfd.readouterr().err
    assert json.loads((made / "recipe").read_text()) == {
        "scheme": "W8A8", "targets": ["Linear"], "ignore": ["lm_head"]}
    assert (made / "tokenizer.json").read_text() == "{}"
    monkeypatch.setattr(compress, "environment", lambda: pytest.fail("made already"))
    assert compress.make(model, scheme="INT8") == made


def test_named_for_the_tensors_and_the_recipe_not_for_the_files(model, tmp_path):
    made = compress.make(model, scheme="INT8")
    a, b = np.arange(6.0), np.zeros((2, 3), np.float16)
    assert compress.make(write(tmp_path / "header", {"a": a, "b": b}, format="pt"),
                         scheme="INT8") == made
    split = write(tmp_path / "split", {"b": b})
    save_file({"a": a}, split / "more.safetensors")
    assert compress.make(split, scheme="INT8") == made
    others = [{"a": a + 1, "b": b}, {"A": a, "b": b}, {"a": a, "b": b.reshape(3, 2)}]
    folders = {compress.make(write(tmp_path / str(n), other), scheme="INT8")
               for n, other in enumerate(others)}
    assert len(folders | {made, compress.make(model, scheme="FP8")}) == 5


def test_a_damaged_one_is_made_again(model):
    made = compress.make(model, scheme="INT8")
    os.truncate(made / "model.safetensors", 20)
    assert models.verify(compress.make(model, scheme="INT8")) == made


def test_a_worker_that_fails_is_an_error_with_its_last_lines(model, monkeypatch, tmp_path):
    worker(monkeypatch, tmp_path, "raise MemoryError('no room for it')")
    with pytest.raises(LabError, match=r"(?s)INT8 of model failed.*\| MemoryError: no room for it"):
        compress.make(model, scheme="INT8")
    assert [file.suffix for file in models.cache_folder().iterdir()] == [".lock"]


def test_a_worker_that_leaves_half_of_it(model, monkeypatch, tmp_path):
    worker(monkeypatch, tmp_path, WORKER + "open(target + '/model.safetensors', 'w').write('x')")
    with pytest.raises(LabError, match="incomplete: model.safetensors is cut short"):
        compress.make(model, scheme="INT8")


def test_killed_midway_nothing_is_left_running_and_it_is_begun_again(model, monkeypatch, tmp_path):
    marker = tmp_path / "worker.pid"
    slow = f"import os, time; open({str(marker)!r}, 'w').write(str(os.getpid())); time.sleep(60)"
    worker(monkeypatch, tmp_path, slow)
    script = ("import sys; from pathlib import Path; from helpers import compress\n"
              "compress.environment = lambda: Path(sys.executable)\n"
              f"compress.WORKER = Path({str(compress.WORKER)!r})\n"
              f"compress.make({str(model)!r}, scheme='INT8')")
    owner = subprocess.Popen([sys.executable, "-c", script], stderr=subprocess.DEVNULL)
    until(lambda: marker.exists() and marker.read_text())
    owner.send_signal(signal.SIGKILL)
    owner.wait()
    until(lambda: not Path(f"/proc/{marker.read_text()}").exists())
    assert list(models.cache_folder().glob("int8-*.partial-*"))
    worker(monkeypatch, tmp_path, WORKER)
    made = compress.make(model, scheme="INT8")
    assert models.verify(made) and not list(models.cache_folder().glob("*.partial-*"))


def until(true):
    end = time.monotonic() + 20
    while not true():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_no_environment_and_no_network(model, monkeypatch, tmp_path):
    monkeypatch.undo()
    monkeypatch.setenv("LAB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(compress, "LOGS", tmp_path / "logs")
    failing = tmp_path / "install.py"
    failing.write_text("import sys; sys.exit('Set-up stopped. no package index can be reached')")
    monkeypatch.setattr(compress.install, "__file__", str(failing))
    monkeypatch.setattr(compress.install.Job, "todo", lambda _: ["all of it"])
    with pytest.raises(LabError, match=r"(?s)\.venv-compress failed.*With a network.*no package"):
        compress.make(model, scheme="INT8")


def test_random_weights_are_not_compressed(model):
    (model / "RANDOM_WEIGHTS.txt").write_text("")
    with pytest.raises(LabError, match="no weights to compress"):
        compress.make(model, scheme="INT8")


def test_an_unknown_scheme(model):
    with pytest.raises(LabError, match="no scheme 'INT4'"):
        compress.make(model, scheme="INT4")


def test_what_stands_in_for_a_shape(model):
    assert compress.source(str(model)) == str(model)
    (model / "RANDOM_WEIGHTS.txt").write_text("")
    assert compress.source(str(model)) == "smollm2-135m"


@pytest.mark.parametrize(("name", "fp8", "random", "expected"), [
    ("cpu", True, False, {"BF16": {}, "INT8": {}}),
    ("gpu", False, False, {"BF16": {}, "INT8": {}}),
    ("gpu", True, False, {"BF16": {}, "FP8": {}}),
    ("gpu", True, True, {"BF16": {}, "FP8 online": {"quantization": "fp8"}}),
])
def test_the_pair_that_suits_the_machine(model, monkeypatch, name, fp8, random, expected):
    monkeypatch.setattr(compress.profile, "current", lambda: SimpleNamespace(name=name))
    monkeypatch.setattr(compress.machine, "fp8_cache", lambda: fp8)
    monkeypatch.setattr(compress, "make", lambda source, *, scheme: model / scheme)
    if random:
        (model / "RANDOM_WEIGHTS.txt").write_text("")
    found = compress.pair(str(model))
    assert {arm: flags for arm, (_, flags) in found.items()} == expected
    small = next(arm for arm in found if arm != "BF16")
    assert found[small][0] == (model if random else model / small)


@pytest.mark.parametrize("line, name", [
    ("INFO [__init__.py:794] Selected CPUInt8ScaledMMLinearKernel for CompressedTensorsW8A8Int8",
     "CPUInt8ScaledMMLinearKernel"),
    ("INFO [x.py:132] Using CPUWNA16LinearKernel for CompressedTensorsWNA16",
     "CPUWNA16LinearKernel"),
    ("INFO Selected PerTensorTorchFP8ScaledMMLinearKernel for Fp8PerTensorOnlineLinearMethod",
     "PerTensorTorchFP8ScaledMMLinearKernel"),
    ("INFO Using max model len 2048 for m", ""),
])
def test_the_kernel_in_a_log(line, name):
    assert compress.kernel(SimpleNamespace(log=lambda: f"one\n{line}\nthree")) == name


def test_what_an_engine_holds(monkeypatch):
    said = SimpleNamespace(log=lambda: "Model loading took 0.25 GiB memory and 1.2 seconds")
    assert compress.loaded_bytes(said, pool_bytes=100) == 2**28
    monkeypatch.setattr(compress.machine, "engine_memory", lambda _: 1000)
    silent = SimpleNamespace(log=lambda: "")
    assert compress.loaded_bytes(silent, pool_bytes=100) == 900


@pytest.mark.parametrize("kind, arms", [("cpu", ["FP8 online"]), ("gpu", ["FP8 online", "BF16"])])
def test_fp8_online_has_a_baseline_on_a_gpu(model, monkeypatch, kind, arms):
    served = []
    monkeypatch.setattr(compress.servers, "serve", lambda folder, **how: served.append(how))
    monkeypatch.setattr(compress.profile, "current", lambda: SimpleNamespace(name=kind))
    assert list(compress.online(model, max_model_len=9)) == arms
    assert served[0]["quantization"] == "fp8" and served[0]["max_model_len"] == 9
    assert all("quantization" not in how for how in served[1:])
