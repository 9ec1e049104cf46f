"""Every exercise's check: unanswered prints a circle, wrong raises with a hint, right ticks."""

import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from types import SimpleNamespace

import pytest

from helpers import check
from helpers.check import lesson00, lesson01, lesson02

ARRIVALS = [0.1, 0.2, 0.3, 0.5]
ROW = SimpleNamespace(ttft_s=0.05, e2el_s=0.45, chunk_times_s=[0.05] * 11)
POINT = SimpleNamespace(duration_s=10.0)


@pytest.fixture
def engine():
    """Counts 39 prompt tokens, and decodes 1 to 8."""
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b'{"usage": {"prompt_tokens": 39}, "choices": '
                             b'[{"token_ids": [1, 2, 3, 4, 5, 6, 7, 8]}]}')

        def log_message(self, *_):
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield SimpleNamespace(url=f"http://127.0.0.1:{server.server_port}", model="m")
    server.shutdown()


@pytest.fixture
def quiz():
    lesson01._replies.clear()
    lesson01.remember("What is the capital of France?", "It is Paris.")
    lesson01.remember("What is 17 times 3?", "It is 54.")
    yield
    lesson01._replies.clear()


# name: (check, right answer, wrong answer, further arguments)
CASES = {
    "warm_up": (lesson00.warm_up, 8, 7, []),
    "real_weights": (lesson00.real_weights, lesson00.real_weights_answer(), 7e9, []),
    "weights": (lesson01.weights, 1.2e9, 600e6, []),
    "tpot": (lesson02.tpot, 0.4 / 3, 0.4 / 4, [ARRIVALS, 4]),
    "duration": (lesson02.duration, 9.5, 80.0, [POINT]),
    "chunks_as_tokens": (lesson02.chunks_as_tokens, 0.04, 0.01, [ROW]),
}


@pytest.mark.parametrize("name", CASES)
def test_checks_of_a_number(name, capsys):
    function, right, wrong, arguments = CASES[name]
    function(..., *arguments)
    assert capsys.readouterr().out.startswith("○")
    function(right, *arguments)
    assert capsys.readouterr().out.startswith("✓")
    for answer in (wrong, "a word"):
        with pytest.raises(check.WrongAnswer) as error:
            function(answer, *arguments)
        assert str(error.value)
        assert "Traceback" not in "".join(error.value._render_traceback_())


def test_quiz(quiz, capsys):
    lesson01.quiz(...)
    lesson01.quiz(1)
    out = capsys.readouterr().out
    assert "○" in out and "✓ 1 of 6" in out
    with pytest.raises(check.WrongAnswer):
        lesson01.quiz(2)


def test_quiz_before_its_questions():
    with pytest.raises(check.WrongAnswer, match="first"):
        lesson01.quiz(3)


def test_checks_that_ask_the_engine(engine, capsys):
    lesson01.prompt_tokens(..., engine, [])
    lesson01.decode(..., engine, [1])
    lesson01.prompt_tokens(39, engine, [])
    lesson01.decode([1, 2, 3, 4, 5, 6, 7, 8], engine, [1])
    assert capsys.readouterr().out.count("✓") == 2
    with pytest.raises(check.WrongAnswer, match="template"):
        lesson01.prompt_tokens(9, engine, [])
    with pytest.raises(check.WrongAnswer, match="in order"):
        lesson01.decode([8, 7, 6, 5, 4, 3, 2, 1], engine, [1])


def test_every_check_is_tested():
    tested = {*CASES, "quiz", "prompt_tokens", "decode"}
    for module in (lesson00, lesson01, lesson02):
        public = {name for name, value in vars(module).items() if callable(value)
                  and value.__module__ == module.__name__ and not name.endswith("_answer")}
        assert public - {"remember"} <= tested, module.__name__
