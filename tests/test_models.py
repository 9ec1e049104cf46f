"""Model folders: made whole or not at all, once, and an error that helps where that fails."""

import json
import math
import os
import signal
import socket
import subprocess
import sys
import time

import pytest
from conftest import write_model
from owners import LIMIT_S
from safetensors import safe_open

from helpers import gguf, models, server
from helpers.errors import LabError

PREPARE = "from helpers import models; print(models.prepare('smollm2-135m'))"


@pytest.fixture
def cache(monkeypatch, tmp_path):
    """An empty cache for this test."""
    monkeypatch.setenv("LAB_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def refused(name):
    with pytest.raises(LabError) as caught:
        models.prepare(name)
    assert caught.value.cause and caught.value.fix
    return caught.value


def test_killed_midway_then_two_at_once(cache):
    """A conversion that is killed leaves nothing to be served; two that meet make one."""
    first = subprocess.Popen([sys.executable, "-c", PREPARE], stdout=subprocess.DEVNULL,
                             stderr=subprocess.DEVNULL)
    until(lambda: converters(cache))
    first.send_signal(signal.SIGKILL)
    first.wait()
    until(lambda: not converters(cache))
    assert not (cache / "smollm2-135m-instruct").exists()
    assert list(cache.glob("*.partial-*"))

    two = [subprocess.Popen([sys.executable, "-c", PREPARE], stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True) for _ in range(2)]
    most = 0
    while any(process.poll() is None for process in two):
        most = max(most, len(converters(cache)))
        assert not (cache / "smollm2-135m-instruct").exists() or models.prepare("smollm2-135m")
        time.sleep(0.2)
    answers = [process.communicate() for process in two]
    assert sum("is preparing it" in said for _, said in answers) == 1
    folders = {out.strip() for out, _ in answers}
    assert folders == {str(cache / "smollm2-135m-instruct")}
    assert most == 1
    assert sum("ready after" in said for _, said in answers) == 1
    assert [path.name for path in cache.iterdir() if path.is_dir()] == ["smollm2-135m-instruct"]
    assert not (cache / "smollm2-135m-instruct" / "conversion.log").exists()
    assert models.tensor_bytes(cache / "smollm2-135m-instruct")


def converters(cache):
    """Processes that write into `cache`."""
    found = subprocess.run(["pgrep", "-f", f"^{sys.executable} -m helpers.gguf .*{cache}"],
                           capture_output=True, text=True)
    return found.stdout.split()


def until(true):
    end = time.monotonic() + 3 * LIMIT_S
    while not true():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_a_folder_appears_whole_and_once(cache):
    filled = []

    def fill(folder):
        filled.append(folder)
        assert not (cache / "x").exists()
        write_model(folder)

    assert models.made_once("x", fill) == models.made_once("x", fill) == cache / "x"
    assert len(filled) == 1


def test_a_failed_one_leaves_nothing(cache):
    def fail(folder):
        write_model(folder)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        models.made_once("x", fail)
    assert [path.name for path in cache.iterdir()] == ["x.lock"]


def test_a_damaged_one_is_made_again(cache):
    folder = models.made_once("x", write_model)
    os.truncate(folder / "model.safetensors", 20)
    assert models.verify(models.made_once("x", write_model)) == folder


def test_a_conversion_that_fails_says_so(cache, monkeypatch, tmp_path):
    (tmp_path / "bad.gguf").write_bytes(b"GGUF but not really")
    monkeypatch.setattr(gguf, "_file", lambda: tmp_path / "bad.gguf")
    error = refused("smollm2-135m")
    assert "could not be converted" in error.what and error.log
    assert "Traceback" not in str(error) and "  File" not in str(error)
    assert not list(cache.glob("smollm2*/"))


def test_the_package_is_missing(cache, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert "make setup" in refused("smollm2-135m").fix


def test_a_cache_that_cannot_be_written(monkeypatch, tmp_path):
    (tmp_path / "file").touch()
    monkeypatch.setenv("LAB_CACHE", str(tmp_path / "file" / "cache"))
    assert "LAB_CACHE" in refused("smollm2-135m").fix


def test_tensor_bytes_are_those_of_the_safetensors_library():
    path = models.prepare("smollm2-135m")
    with safe_open(path / "model.safetensors", "pt") as file:
        shapes = {name: file.get_slice(name).get_shape() for name in file.offset_keys()}
    sizes = models.tensor_bytes(path)
    assert sizes == {name: 2 * math.prod(shape) for name, shape in shapes.items()}  # bfloat16
    assert round(sum(sizes.values()) / 2**20, 1) == 256.6


def test_config_is_a_dict_without_a_network():
    assert models.config("smollm2-135m")["num_hidden_layers"] == 30
    assert models.config("shape:Qwen3-0.6B")["num_hidden_layers"] == 28


@pytest.mark.parametrize("name", ["Qwen3-0.6B", "Qwen2.5-1.5B-Instruct"])
def test_a_shape_is_served_with_random_weights(name, standin, capsys):
    folder = models.prepare(f"shape:{name}")
    assert json.loads((folder / "config.json").read_text()) == models.config(f"shape:{name}")
    assert (folder / "tokenizer.json").is_file() and not list(folder.glob("*.safetensors"))
    live = server.serve(folder)
    assert "--load-format dummy" in live.command and f"--served-model-name {name}" in live.command
    assert "random" in capsys.readouterr().out


def test_whispers_shape_is_served_for_as_long_a_text_as_it_writes(standin):
    folder = models.prepare("shape:whisper-small")
    assert json.loads((folder / "config.json").read_text()) == models.config("shape:whisper-small")
    command = server.serve(folder).command
    assert "--load-format dummy" in command and "--max-model-len 448" in command


def test_a_shape_for_sizing_alone_is_not_served(cache):
    assert "for sizing" in refused("shape:Mistral-7B-v0.1").fix
    assert not list(cache.glob("shape-Mistral*/"))


def test_a_folder_is_checked_and_returned(tiny_model, tmp_path):
    assert models.prepare(tiny_model) == models.prepare(str(tiny_model)) == tiny_model
    assert "config.json" in refused(tmp_path).what


@pytest.mark.parametrize("name", ["nonsense", "shape:nonsense", "a/b/c", "./a", ""])
def test_no_such_model(name):
    error = refused(name)
    assert "shape" in error.fix or "smollm2" in error.fix


@pytest.fixture
def silent_hub(monkeypatch, tmp_path):
    """A hub that takes connections and never answers; and an empty folder of downloads."""
    from huggingface_hub import constants

    with socket.create_server(("127.0.0.1", 0)) as hub:
        monkeypatch.setattr(constants, "ENDPOINT", f"http://127.0.0.1:{hub.getsockname()[1]}")
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
        monkeypatch.setattr(models, "HUB_ANSWERS_S", 0.5)
        yield tmp_path


@pytest.mark.parametrize("closed", [False, True], ids=["silent", "closed"])
def test_no_network_names_the_model_that_needs_none(silent_hub, closed, monkeypatch):
    from huggingface_hub import constants

    if closed:
        monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:1")
    error = refused("Qwen/Qwen3-0.6B")
    assert "Qwen/Qwen3-0.6B" in error.what and "does not answer" in error.cause
    assert "LAB_MODEL=smollm2-135m" in error.fix
    assert "Traceback" not in str(error)


def download(folder, name):
    """What huggingface_hub leaves of a download, without a weights file."""
    model = folder / f"models--{name.replace('/', '--')}"
    snapshot = model / "snapshots" / "0123abcd"
    snapshot.mkdir(parents=True)
    (model / "refs").mkdir()
    (model / "refs" / "main").write_text("0123abcd")
    (snapshot / "config.json").write_text("{}")
    return snapshot


def test_a_downloaded_model_needs_no_network(silent_hub):
    snapshot = write_model(download(silent_hub, "org/model"))
    assert models.prepare("org/model") == snapshot
    assert models.served_name(snapshot) == "org/model"


def test_a_half_downloaded_model_is_not_served(silent_hub):
    download(silent_hub, "org/model")
    assert "a .safetensors file is missing" in refused("org/model").cause
