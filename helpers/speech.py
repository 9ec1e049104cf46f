"""Speech for Whisper: the recordings of data/audio, and requests to /v1/audio/transcriptions.

A request is made before the clock starts, as bytes that `helpers.client` sends as they are, so
that text and speech are measured by one client on one clock. Its row is that of any other request.
"""

import functools
import io
import json
import re
import wave
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
from tokenizers import Tokenizer

from helpers import client, profile, provenance

AUDIO = provenance.ROOT / "data" / "audio"
SAMPLES_PER_S = 16_000
MARK = "end-of-a-part-0d5c1f"  # between the parts of a request
NOISE = 0.001  # of full scale: too quiet to hear, enough that no two requests are the same


@dataclass(frozen=True, slots=True)
class Clip:
    """One recording: its name, its length, and the text that is spoken in it."""

    name: str
    seconds: float
    text: str
    samples: np.ndarray  # -1 to 1, SAMPLES_PER_S of them a second


def choice():
    """(model, dtype) of the speech model that fits this machine; says which, and why.

    Whisper Small at FP16, as in the study. On a CPU Whisper Tiny at BF16: the encoder of the other
    takes seconds there, and few processors multiply FP16 numbers by themselves.
    """
    model, dtype, why = ("shape:whisper-small", "float16", "as in the study")
    if profile.current().name == "cpu":
        model, dtype = "shape:whisper-tiny", "bfloat16"
        why = "Whisper Small would hear for seconds, and few CPUs have arithmetic for FP16"
    print(f"Speech model: {model} at {dtype}: {why}.")
    return model, dtype


def clips():
    """The recordings, the shortest first."""
    import soundfile  # only where there is sound to read

    found = []
    for path in AUDIO.glob("*.ogg"):
        samples, rate = soundfile.read(path)
        assert rate == SAMPLES_PER_S, path
        text = path.with_suffix(".txt").read_text(encoding="utf-8").strip()
        found.append(Clip(path.stem, len(samples) / rate, text, samples))
    return sorted(found, key=lambda clip: clip.seconds)


def text_tokens(server, clip):
    """How many tokens the text of a recording has, by the tokenizer that the engine uses."""
    tokenizer = _tokenizer(Path(server.tokenizer) / "tokenizer.json")
    return len(tokenizer.encode(clip.text, add_special_tokens=False).ids)


@functools.cache
def _tokenizer(path):
    return Tokenizer.from_file(str(path))


def request(server, clip, *, max_tokens=None, seed=0):
    """The bytes of one HTTP request that streams the text of `clip`; English, temperature 0.

    max_tokens: it writes so many at most (`max_completion_tokens`): with random weights, which do
    not know when to stop, exactly. None takes as many as the text has that is spoken.
    seed: of a noise too quiet to hear. Requests that differ in it share nothing in any cache.
    Fields: vllm/entrypoints/speech_to_text/transcription/protocol.py.
    """
    fields = {"model": server.model, "language": "en", "temperature": 0, "stream": "true",
              "stream_include_usage": "true", "stream_continuous_usage_stats": "true",
              "max_completion_tokens": max_tokens or text_tokens(server, clip)}
    parts = [f'--{MARK}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'
             for name, value in fields.items()]
    parts.append(f'--{MARK}\r\nContent-Disposition: form-data; name="file"; '
                 f'filename="{clip.name}.wav"\r\nContent-Type: audio/wav\r\n\r\n')
    body = "".join(parts).encode() + _wav(clip, seed) + f"\r\n--{MARK}--\r\n".encode()
    head = (f"POST /v1/audio/transcriptions HTTP/1.1\r\nHost: {urlsplit(server.url).netloc}\r\n"
            f"Content-Type: multipart/form-data; boundary={MARK}\r\n"
            f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n")
    return head.encode() + body


def requests(server, number, *, seed, max_tokens=None, only=None):
    """`number` requests, which take the recordings in turn (or those named in `only`).

    seed: the same one makes the same requests; another, others in the same order.
    """
    chosen = [clip for clip in clips() if only is None or clip.name in only]
    return [request(server, chosen[place % len(chosen)], max_tokens=max_tokens,
                    seed=[place + 1, *np.ravel(seed)]) for place in range(number)]


def transcribe(server, bodies, *, concurrency=1, **options):
    """Send such requests, `concurrency` at a time; rows as of `client.streams`.

    Raises LabError when all failed.
    """
    return client.together({"speech": server}, {"speech": bodies}, max_tokens=None,
                           concurrency={"speech": concurrency}, **options)


def padded_s(path):
    """Seconds of sound that a Whisper folder fills every recording up to, from its settings."""
    settings = json.loads((Path(path) / "preprocessor_config.json").read_text())
    return settings["chunk_length"]


def requests_that_fit(server):
    """How many requests of full length the cache of an engine holds at once, by its own log."""
    server.wait()
    return float(re.search(r"Maximum concurrency for [\d,]+ tokens per request: ([\d.]+)x",
                           server.log())[1])


def _wav(clip, seed):
    """The recording and its own noise as a WAV file: 16 bits, one channel."""
    noise = NOISE * np.random.default_rng(seed).uniform(-1, 1, len(clip.samples))
    samples = np.clip(clip.samples + noise, -1, 1) * 32767
    file = io.BytesIO()
    with wave.open(file, "wb") as sound:
        sound.setnchannels(1)
        sound.setsampwidth(2)
        sound.setframerate(SAMPLES_PER_S)
        sound.writeframes(samples.astype("<i2").tobytes())
    return file.getvalue()
