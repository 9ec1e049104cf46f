"""A test server with known latencies: the truth that clients are measured against.

OpenAI-compatible (/v1/completions, /v1/chat/completions), with no model behind it. Token k (from
0) is due first_s + k * gap_s after its request arrived. The first token is a chunk of its own;
then come tokens_per_chunk tokens a chunk, sent when the last of them is due. Every deadline is
counted from the arrival, so lateness never adds up, and the server reports how late it was.
"""

import json
import os
import re
import select
import shlex
import shutil
import string
import sys
import tempfile
import urllib.request
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from helpers import supervisor
from helpers.errors import LabError


@lru_cache
def schedule(tokens, *, first_s, gap_s, tokens_per_chunk):
    """[(seconds after arrival, tokens)] of each chunk of an answer of `tokens` tokens."""
    ends = [0, *range(tokens_per_chunk, tokens - 1, tokens_per_chunk)]
    if tokens > 1:
        ends.append(tokens - 1)
    starts = [-1, *ends]
    return [(first_s + end * gap_s, end - start)
            for start, end in zip(starts, ends, strict=False)]


def count_tokens(prompt):
    """Tokens of a prompt by the server's own tokenizer: one a character, ' x' together."""
    if isinstance(prompt, list) and prompt and isinstance(prompt[0], dict):
        prompt = "".join(map(_content, prompt))
    pairs = 0 if isinstance(prompt, list) else len(re.findall(" [a-z]", prompt))
    return len(prompt) - pairs


def _content(message):
    """The text of one chat message, whose content may be a list of parts."""
    content = message.get("content") or ""
    return content if isinstance(content, str) else "".join(p.get("text", "") for p in content)


@dataclass
class Reference:
    """The running server: what a client asks of any server, and how late it was."""

    url: str
    model: str
    tokenizer: Path
    command: str
    process: object
    folder: Path

    @property
    def port(self):
        return int(self.url.rpartition(":")[2])

    def lateness(self):
        """{chunks, mean_s, p99_s, max_s}: how late chunks left since the last call."""
        with urllib.request.urlopen(f"{self.url}/lateness", timeout=10) as answer:
            return json.load(answer)

    def stop(self):
        """End the server; a second call does nothing."""
        supervisor.stop(self.process)
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()


def serve(*, first_s=0.05, gap_s=0.01, tokens_per_chunk=1):
    """Start the server in a process of its own, on a free port of 127.0.0.1.

    first_s, gap_s: when token k of an answer is due, first_s + k * gap_s seconds after the
    request arrived. Returns a Reference, which is also a context manager. Raises LabError if
    the process does not start.
    """
    folder = Path(tempfile.mkdtemp(prefix="reference-"))
    write_tokenizer(folder)
    command = [sys.executable, "-m", "helpers.reference_server", "--first-s", str(first_s),
               "--gap-s", str(gap_s), "--tokens-per-chunk", str(tokens_per_chunk)]
    reading, writing = os.pipe()
    process, port = None, b""
    try:
        process = supervisor.start(command, env=dict(os.environ), log_path=folder / "log",
                                   stdout=writing, cwd=Path(__file__).parents[1])
        os.close(writing)
        if select.select([reading], [], [], 30)[0]:
            port = os.read(reading, 16).strip()
    finally:
        os.close(reading)
        if process and not port:  # it failed, or we were interrupted
            supervisor.stop(process)
    if not port:
        raise LabError("The reference server did not start.", log=(folder / "log").read_text())
    return Reference(url=f"http://127.0.0.1:{port.decode()}", model="reference", tokenizer=folder,
                     command=shlex.join(command), process=process, folder=folder)


def write_tokenizer(folder):
    """The server's tokenizer as Hugging Face files: a token a character, ' x' together."""
    characters = ["\u010a", "\u0120", *sorted(set(map(chr, range(33, 127))))]  # Ċ, Ġ: line, space
    words = ["\u0120" + letter for letter in string.ascii_lowercase]
    vocabulary = {token: at for at, token in enumerate(["<end>", *characters, *words])}
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True,
                  "use_regex": False}
    model = {"type": "BPE", "vocab": vocabulary, "unk_token": "<end>",
             "merges": [["\u0120", letter] for letter in string.ascii_lowercase]}
    end = {"id": 0, "content": "<end>", "special": True, "single_word": False, "lstrip": False,
           "rstrip": False, "normalized": False}
    (folder / "tokenizer.json").write_text(json.dumps({
        "version": "1.0", "added_tokens": [end], "pre_tokenizer": byte_level,
        "decoder": byte_level, "model": model}))
    (folder / "config.json").write_text('{"model_type": "gpt2"}')  # transformers asks for one
    (folder / "tokenizer_config.json").write_text(json.dumps({
        "tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<end>",
        "unk_token": "<end>", "model_max_length": 1_000_000}))
