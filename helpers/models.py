"""Model folders that vLLM can serve: from an installed package, from a shape, or from the hub.

A folder is written under a temporary name and renamed once it is complete, so a half-written one
is never served. They live in LAB_CACHE, or ~/.cache/vllm-course.
"""

import json
import os
import shutil
import tempfile
from contextlib import contextmanager
from pathlib import Path

import httpx
from filelock import FileLock, Timeout

from helpers import gguf, whisper
from helpers.checkpoint import (
    RANDOM_WEIGHTS_NOTE,
    damage,
    has_random_weights,
    name_every_id,
    tensor_bytes,
    verify,
)
from helpers.errors import LabError
from helpers.progress import Line

__all__ = ["cache_folder", "config", "engine_flags", "has_random_weights", "prepare",
           "served_name", "shapes", "tensor_bytes", "verify"]
OFFLINE_DEFAULT = "smollm2-135m"
HUB_FILES = ["*.json", "*.safetensors", "*.txt", "*.model", "*.jinja"]
HUB_ANSWERS_S = 8
SHAPES = Path(__file__).parent.parent / "data" / "shapes"


def cache_folder():
    """Where prepared models live."""
    return Path(os.environ.get("LAB_CACHE") or "~/.cache/vllm-course").expanduser()


def prepare(name):
    """A folder with the model `name`, ready for `server.serve`; made on first use.

    name: 'smollm2-135m' (from the installed package, no network), 'shape:NAME' (a configuration
    of data/shapes and a tokenizer, served with random weights), a hub id such as
    'Qwen/Qwen3-0.6B', or a folder, which is checked and returned.
    Raises LabError when it cannot be had, naming what works with no network.
    """
    name = str(name)
    if Path(name).is_dir():
        return verify(name)
    if name == OFFLINE_DEFAULT:
        return made_once("smollm2-135m-instruct", gguf.write_smollm2)
    if name.startswith("shape:"):
        return _prepare_shape(name.removeprefix("shape:"))
    if name.count("/") == 1 and not name.startswith((".", "/")):
        return _from_hub(name)
    raise LabError(
        f"There is no model called {name!r}.",
        cause="It is not a folder, a shape of the course, or a hub id such as Qwen/Qwen3-0.6B.",
        fix=f"Use {OFFLINE_DEFAULT!r}, one of {[f'shape:{s}' for s in shapes()]}, or a hub id.",
    )


def shapes():
    """Names of the shapes that ship with the course."""
    return sorted(folder.name for folder in SHAPES.iterdir() if folder.is_dir())


def config(name):
    """config.json of a model as a dict; for a shape and for the offline model, no network."""
    if name.startswith("shape:"):
        return json.loads((_shape(name.removeprefix("shape:")) / "config.json").read_text())
    return json.loads((prepare(name) / "config.json").read_text())


def engine_flags(path):
    """vLLM's flags that follow from the folder: the served name, how to load no weights, and for
    Whisper the longest text that it writes of one recording."""
    flags = {"served_model_name": served_name(path)}
    shape = json.loads((Path(path) / "config.json").read_text())
    if shape.get("model_type") == "whisper":
        flags["max_model_len"] = shape["max_target_positions"]
    if has_random_weights(path):
        print("This folder has no weights: vLLM makes random ones, and the text means nothing.")
        flags["load_format"] = "dummy"
    return flags


def served_name(path):
    """The name that requests use for the model in `path`: its hub id, its shape, or its folder."""
    path = Path(path)
    for part in path.parts:
        if part.startswith("models--"):
            return part.removeprefix("models--").replace("--", "/")
    return path.name.removeprefix("shape-")


def made_once(folder, fill):
    """Cached folder `folder`, filled by `fill(temporary folder)` the first time.

    A lock keeps two notebooks from filling it at once; the rename makes it appear whole. One
    that was damaged later is made again.
    """
    target = cache_folder() / folder
    if target.is_dir() and not damage(target):
        return target
    with _writable(target.parent), _alone(target):
        for leftover in target.parent.glob(f"{folder}.partial-*"):
            shutil.rmtree(leftover, ignore_errors=True)  # from a process that was killed
        if target.is_dir() and damage(target):
            shutil.rmtree(target)
        if not target.is_dir():
            temporary = Path(tempfile.mkdtemp(prefix=f"{folder}.partial-", dir=target.parent))
            try:
                fill(temporary)
                os.chmod(temporary, 0o755)
                temporary.rename(target)
            finally:
                shutil.rmtree(temporary, ignore_errors=True)
    return target


@contextmanager
def _alone(target):
    lock = FileLock(f"{target}.lock")
    try:
        lock.acquire(blocking=False)
    except Timeout:
        line = Line(f"{target.name}: waiting, another notebook is preparing it")
        lock.acquire()
        line.done(f"{target.name}: another notebook was preparing it, {line.elapsed_s:.0f} s")
    try:
        yield
    finally:
        lock.release()


@contextmanager
def _writable(folder):
    try:
        folder.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        raise LabError(
            f"The model could not be written under {folder}: {error}.",
            cause="No space left on the disk, or a folder that is not yours.",
            fix="Free some space, or set LAB_CACHE to a folder on another disk.",
        ) from error


def _shape(name):
    folder = SHAPES / name
    if not (folder / "config.json").is_file():
        raise LabError(f"There is no shape called {name!r}.", cause="A misspelt name.",
                       fix=f"Use one of {[f'shape:{known}' for known in shapes()]}.")
    return folder


def _prepare_shape(name):
    source, shape = _shape(name), config(f"shape:{name}")
    fewest = config(OFFLINE_DEFAULT)["vocab_size"]
    if shape["vocab_size"] < fewest:
        raise LabError(
            f"The shape {name} cannot be served.",
            cause="It has fewer tokens than the course's tokenizer.",
            fix="This shape is for sizing. To serve one, take shape:Qwen3-0.6B.",
        )

    def fill(folder):
        shutil.copy(source / "config.json", folder)
        (folder / RANDOM_WEIGHTS_NOTE).write_text("Served with --load-format dummy.\n")
        if shape["model_type"] == "whisper":
            return whisper.write_tokenizer(folder, prepare(OFFLINE_DEFAULT))
        for file in prepare(OFFLINE_DEFAULT).iterdir():
            if file.name.startswith(("tokenizer", "special_tokens", "chat_template", "vocab")):
                shutil.copy(file, folder)
        name_every_id(folder, shape["vocab_size"])

    return made_once(f"shape-{name}", fill)


def no_hub():
    """Why the Hugging Face hub cannot be used, '' if it can; the library would wait for minutes."""
    from huggingface_hub import constants

    if constants.HF_HUB_OFFLINE:
        return "HF_HUB_OFFLINE is set"
    try:
        httpx.head(constants.ENDPOINT, timeout=HUB_ANSWERS_S)
    except httpx.TransportError as error:
        return f"the hub does not answer: {str(error) or type(error).__name__}"
    return ""


def _from_hub(name):
    """A snapshot of the hub's model; one that is here already will do if the hub is not reached."""
    from huggingface_hub import snapshot_download

    why = no_hub()
    offline = bool(why)
    try:
        found = Path(snapshot_download(name, allow_patterns=HUB_FILES, local_files_only=offline))
        bad = damage(found)
        if not bad:
            return found
        why = f"what it holds cannot be served: {bad}"
    except Exception as error:  # the hub library raises many kinds; each means: not to be had
        if not offline:
            why = f"{type(error).__name__}: {str(error).splitlines()[0][:200]}"
    raise LabError(
        f"The model {name} could not be had from the Hugging Face hub.", cause=f"{why}.",
        fix=f"Check the name and the network. With no network, {OFFLINE_DEFAULT!r} works "
        f"(LAB_MODEL={OFFLINE_DEFAULT}): its weights are installed with the course.",
    )
