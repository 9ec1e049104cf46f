"""Whisper's folder and the requests to it: what the engine and the client need of both."""

import io
import json
import threading
import wave
from email.parser import BytesParser
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace

import numpy as np
import pytest

from helpers import models, profile, speech, whisper

TOKENS = 5


class Ear(BaseHTTPRequestHandler):
    """Answers a transcription as vLLM streams it, and keeps the form that came."""

    forms = []

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        head = f"Content-Type: {self.headers['Content-Type']}\r\n\r\n".encode()
        parts = BytesParser().parsebytes(head + body).get_payload()
        self.forms.append({part.get_param("name", header="content-disposition"):
                           part.get_payload(decode=True) for part in parts} | {"path": self.path})
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for said in range(TOKENS + 1):
            ended = {"finish_reason": "length"} if said == TOKENS else {}
            usage = {"prompt_tokens": 4, "completion_tokens": said}
            event = {"choices": [{"delta": {"content": "" if ended else " a"}, **ended}],
                     "usage": usage | {"completion_tokens": min(said + 1, TOKENS)}}
            self._chunk(b"data: " + json.dumps(event).encode() + b"\n\n")
        self._chunk(b"data: [DONE]\n\n")
        self._chunk(b"")

    def _chunk(self, data):
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))

    def log_message(self, *_):
        pass


@pytest.fixture
def ear():
    Ear.forms.clear()
    with ThreadingHTTPServer(("127.0.0.1", 0), Ear) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        yield SimpleNamespace(url=f"http://127.0.0.1:{server.server_port}", model="whisper-small")
        server.shutdown()


def test_a_transcription_is_a_row_like_any_other(ear):
    bodies = speech.requests(ear, 3, max_tokens=TOKENS, seed=[1, 0])
    rows = speech.transcribe(ear, bodies, concurrency=2)
    assert list(rows.outcome) == ["ok"] * 3 and set(rows.engine) == {"speech"}
    assert (rows.output_tokens == TOKENS).all() and (rows.ttft_s > 0).all()
    assert rows.chunk_tokens[0] == [1] * TOKENS and rows.text[0] == " a" * TOKENS
    form = Ear.forms[0]
    assert form["path"] == "/v1/audio/transcriptions"
    assert form["max_completion_tokens"] == b"5" and form["stream"] == b"true"
    with wave.open(io.BytesIO(form["file"])) as sound:
        lengths = {round(clip.seconds * speech.SAMPLES_PER_S) for clip in speech.clips()}
        assert sound.getframerate() == 16_000 and sound.getnframes() in lengths


def test_as_many_tokens_are_asked_for_as_the_text_has(ear):
    ear.tokenizer = models.prepare("shape:whisper-small")
    speech.transcribe(ear, speech.requests(ear, 4, seed=0), concurrency=1)
    asked = [int(form["max_completion_tokens"]) for form in Ear.forms]
    words = [len(clip.text.split()) for clip in speech.clips()]
    assert all(word <= tokens < 1.6 * word for word, tokens in zip(words, asked, strict=True))


def test_no_two_requests_are_the_same_but_a_seed_makes_them_again(ear):
    first, again, other = (speech.requests(ear, 5, max_tokens=9, seed=seed, only=["door"])
                           for seed in (3, 3, [3, 1]))
    assert first == again and len({*first, *other}) == 10
    assert len({len(body) for body in first}) == 1


def test_the_recordings_are_short_and_have_their_text():
    found = speech.clips()
    assert len(found) >= 3 and sum(path.stat().st_size for path in speech.AUDIO.iterdir()) < 5e5
    for clip in found:
        assert 1 < clip.seconds < 30 and clip.text.endswith(".")
        assert 8 < len(clip.text) / clip.seconds < 20  # somebody speaks, and at a usual pace
        assert np.abs(clip.samples).mean() > 0.02 and np.abs(clip.samples).max() <= 1
    assert [clip.seconds for clip in found] == sorted(clip.seconds for clip in found)


def test_the_special_tokens_are_at_whispers_places():
    """openai/whisper, whisper/tokenizer.py; the same ids are in vLLM's and transformers' tests."""
    tokens = whisper.special_tokens()
    assert whisper.TEXT_TOKENS + len(tokens) == models.config("shape:whisper-small")["vocab_size"]
    places = {token: whisper.TEXT_TOKENS + place for place, token in enumerate(tokens)}
    assert len(places) == len(tokens)
    assert places | {
        "<|endoftext|>": 50257, "<|startoftranscript|>": 50258, "<|en|>": 50259, "<|su|>": 50357,
        "<|translate|>": 50358, "<|transcribe|>": 50359, "<|notimestamps|>": 50363,
        "<|0.00|>": 50364, "<|30.00|>": 51864} == places


def test_the_folder_has_a_tokenizer_and_ears():
    from tokenizers import Tokenizer

    folder = models.prepare("shape:whisper-small")
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    assert tokenizer.get_vocab_size() == models.config("shape:whisper-small")["vocab_size"]
    start = "<|startoftranscript|><|en|><|transcribe|><|notimestamps|>"
    assert tokenizer.encode(start + " Bees").ids[:4] == [50258, 50259, 50359, 50363]
    assert max(tokenizer.encode("Bees carry pollen.<|im_start|>").ids) < 49_152
    assert speech.padded_s(folder) == 30


@pytest.mark.parametrize("name, model", [("cpu", "tiny"), ("gpu", "small")])
def test_the_model_fits_the_machine(name, model, monkeypatch, capsys):
    monkeypatch.setattr(profile, "current", lambda: {"cpu": profile.CPU, "gpu": profile.GPU}[name])
    assert speech.choice()[0] == f"shape:whisper-{model}"
    assert "Speech model" in capsys.readouterr().out


def test_what_fits_is_read_from_the_log():
    line = "CPU KV cache size: 5,226 tokens, Maximum concurrency for 448 tokens per request: 11.67x"
    server = SimpleNamespace(wait=lambda: None, log=lambda: f"a\n{line}\nb")
    assert speech.requests_that_fit(server) == 11.67
