"""What is in a model folder: its tensors, and whether it is all there."""

import json
import struct
from pathlib import Path

from helpers.errors import LabError

RANDOM_WEIGHTS_NOTE = "RANDOM_WEIGHTS.txt"  # marks a folder made from a shape


def tensor_bytes(path):
    """{tensor name: bytes} of a checkpoint folder, read from its safetensors headers only."""
    return {name: end - start for name, (_, start, end, _) in tensors(path).items()}


def tensors(path):
    """{tensor name: (file, its first byte there, the byte after its last, dtype and shape)}.

    Format: 8 bytes little-endian header length, then JSON (safetensors documentation).
    """
    found = {}
    for file in sorted(Path(path).glob("*.safetensors")):
        header, data = _header(file)
        for tensor, entry in header.items():
            if tensor != "__metadata__":
                start, end = entry["data_offsets"]
                found[tensor] = (file, data + start, data + end, (entry["dtype"], entry["shape"]))
    return found


def verify(path):
    """The folder, if vLLM can serve it; else a LabError that says what is missing from it."""
    path = Path(path)
    fix = "Delete it and make it again with models.prepare; 'smollm2-135m' needs no network."
    if not path.is_dir():
        raise LabError(f"There is no model folder at {path}.",
                       cause="A misspelt path; serve() takes what models.prepare returned.",
                       fix="Call server.serve(models.prepare('smollm2-135m')).")
    if not (path / "config.json").is_file():
        raise LabError(f"{path} is not a model: it has no config.json.",
                       cause="Another folder was meant, or a copy was interrupted.", fix=fix)
    bad = damage(path)
    if bad:
        raise LabError(f"The model in {path} is not complete: {bad}.",
                       cause="A download or a copy that was interrupted.", fix=fix)
    return path


def damage(path):
    """What is wrong with a model folder, or ''."""
    index = path / "model.safetensors.index.json"
    try:
        json.loads((path / "config.json").read_text())
        wanted = json.loads(index.read_text())["weight_map"].values() if index.is_file() else ()
    except (OSError, ValueError, KeyError) as error:
        return f"a JSON file is missing or damaged ({error})"
    if has_random_weights(path):
        return ""
    names = sorted({file.name for file in path.glob("*.safetensors")}.union(wanted))
    if not index.is_file() and any("-of-0" in name for name in names):
        return f"{index.name} is missing"
    missing = [name for name in names if not (path / name).is_file()]
    cut = [name for name in names if name not in missing and not _is_whole(path / name)]
    if missing or not names:
        return f"{', '.join(missing) or 'a .safetensors file'} is missing"
    return f"{', '.join(cut)} is cut short or damaged" if cut else ""


def has_random_weights(path):
    """True for a folder made from a shape: vLLM fills the weights with random numbers."""
    return (Path(path) / RANDOM_WEIGHTS_NOTE).is_file()


def name_every_id(folder, vocab_size):
    """Give each id below vocab_size that the tokenizer in `folder` lacks a text of its own.

    Random weights choose any id: without a text, most chunks of an answer would be empty, and
    tools that wait for text would time the wrong one. No merge leads to these tokens, so text is
    tokenized as before.
    """
    file = Path(folder) / "tokenizer.json"
    tokenizer = json.loads(file.read_text(encoding="utf-8"))
    known = tokenizer["model"]["vocab"]
    known |= {f"Ġ{number}": number for number in range(max(known.values()) + 1, vocab_size)}
    file.write_text(json.dumps(tokenizer, ensure_ascii=False), encoding="utf-8")


def _header(file):
    """(the header, where the data after it begin)."""
    with open(file, "rb") as stream:
        (length,) = struct.unpack("<Q", stream.read(8))
        return json.loads(stream.read(length)), 8 + length


def _is_whole(file):
    """A safetensors file ends exactly where its header says that the last tensor ends."""
    try:
        header, data = _header(file)
        ends = [e["data_offsets"][1] for t, e in header.items() if t != "__metadata__"]
        return file.stat().st_size == data + max(ends)
    except (struct.error, ValueError, LookupError, TypeError, AttributeError, OverflowError):
        return False
