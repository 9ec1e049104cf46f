"""Quality: pairs against scipy and worked examples; scoring against a server of known logprobs."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from helpers import harness, models, quality
from helpers.errors import LabError

# Pairs


def test_paired_agrees_with_scipy():
    dice = np.random.default_rng(1)
    b = dice.normal(3, 1, 200)
    a = b + dice.normal(0.1, 0.4, 200)
    found, wanted = quality.paired(a, b), stats.ttest_rel(a, b)
    low, high = wanted.confidence_interval()
    assert (found.low, found.high) == pytest.approx((low, high))
    assert found.mean == pytest.approx((a - b).mean()) and found.pairs == 200
    assert f"{found.mean:+.4f}" in str(found)


def test_the_smallest_effect_is_seen_in_four_of_five_tries():
    dice = np.random.default_rng(2)
    effect = quality.paired(dice.normal(0, 1, 50), np.zeros(50)).detectable
    tries = dice.normal(effect, 1, (2000, 50))
    seen = np.mean([quality.paired(one, np.zeros(50)).low > 0 for one in tries])
    assert 0.7 < seen < 0.9


def test_the_same_twice_differs_by_nothing():
    same = quality.paired([1.0, 2.0, 5.0], [1.0, 2.0, 5.0])
    assert (same.mean, same.low, same.high, same.detectable) == (0, 0, 0, 0)


@pytest.mark.parametrize("compare", [quality.paired, quality.paired_share,
                                     quality.flips])
def test_other_examples_are_no_pairs(compare):
    with pytest.raises(ValueError, match="same examples"):
        compare([1, 0], [1, 0, 1])
    with pytest.raises(ValueError, match="same examples"):
        compare(pd.Series([1, 0], index=[0, 1]), pd.Series([1, 0], index=[0, 2]))


def test_one_pair_is_too_few():
    with pytest.raises(ValueError, match="one pair"):
        quality.paired([1.0], [2.0])


def test_a_share_that_did_not_change_keeps_an_interval():
    same = quality.paired_share([True, False] * 30, [True, False] * 30)
    assert same.mean == 0 and (same.low, same.high) == pytest.approx((-0.0316, 0.0316), abs=1e-4)
    assert same.pairs == 60 and same.detectable == pytest.approx(0.0316 * 2.8 / 1.96, rel=0.01)


def test_a_share_by_hand():
    a = [True] * 9 + [False] * 3 + [True] * 48
    b = [False] * 9 + [True] * 3 + [True] * 48
    found = quality.paired_share(a, b)  # 9.5 and 3.5 of 62
    error = np.sqrt(13 - 36 / 62) / 62
    assert found.mean == pytest.approx(6 / 62)
    assert found.high - found.mean == pytest.approx(1.96 * error, rel=1e-3)
    with pytest.raises(ValueError, match="one pair"):
        quality.paired_share([True], [True])


def test_a_share_covers_the_truth_about_as_often_as_it_says():
    dice = np.random.default_rng(3)
    tries = [dice.choice(3, 60, p=[0.85, 0.1, 0.05]) for _ in range(1000)]  # same, a, b
    found = [quality.paired_share(one == 1, one == 2) for one in tries]
    assert 0.92 < np.mean([each.low <= 0.05 <= each.high for each in found]) < 0.99


def test_flips():
    a = [True] * 7 + [False] * 1 + [True] * 20
    b = [False] * 7 + [True] * 1 + [True] * 20
    found = quality.flips(a, b)
    assert (found.only_a, found.only_b) == (7, 1)
    assert found.p == pytest.approx(2 * (1 + 8) / 2**8)  # by hand: 0 or 1 of 8, and both sides
    assert quality.flips(a, a) == quality.Flips(0, 0, 1.0)
    assert str(found) == "right only here 7, only in the other 1, p = 0.07"


def choices(*picked):
    return pd.DataFrame({"task": "t", "example": range(len(picked)), "name": "x", "question": "?",
                         "choices": [["p", "q", "r"]] * len(picked), "answer": 2,
                         "picked": picked})


def test_disagreements():
    found = quality.disagreements(choices(0, 1, 2), choices(0, 2, 2), names=("BF16", "INT8"))
    assert found[["name", "right", "BF16", "INT8"]].values.tolist() == [["x", "r", "q", "r"]]
    assert list(quality.disagreements(choices(1), choices(1)).columns)[-1] == "b"
    with pytest.raises(ValueError, match="same examples"):
        quality.disagreements(choices(0, 1), choices(0))


# The course's data


def test_texts_and_open_questions():
    texts, questions = quality.texts(), quality.open_questions()
    assert len(texts) == 10 and sum(len(text.split()) for text in texts.values()) > 10_000
    assert len(questions) == 60 and questions[0]["passage"] != questions[1]["passage"]
    assert all(quality.rubric(each["text"], each["rubric"])["facts"] >= 0 for each in questions)


# Scoring, against a server whose logprob of a token id is known


def logprob(token):
    return -0.5 - token % 3


class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.bodies.append(body)
        prompts = body["prompt"]
        if isinstance(prompts, str):
            prompts = [[ord(letter) for letter in prompts]]
        if isinstance(prompts[0], int):
            prompts = [prompts]
        status = 400 if max(map(len, prompts)) > 3000 else 200
        choices = [self.choice(at, tokens) for at, tokens in enumerate(prompts)]
        data = json.dumps({"choices": choices} if status == 200 else "too long").encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(data)

    def choice(self, index, tokens):
        values = [None] + [logprob(token) for token in tokens[1:]]
        engine = [None] + [{str(token): {"logprob": logprob(token), "rank": 1,
                                         "decoded_token": f"<{token}>"}} for token in tokens[1:]]
        made = values + [-1.0]  # the token that was asked for beyond the prompt
        return {"index": index, "text": "", "prompt_logprobs": engine,
                "logprobs": {"token_logprobs": made, "tokens": ["x"] * len(made),
                             "top_logprobs": [None] + [{"x": v} for v in made[1:]]}}

    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def server():
    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    http.bodies = []
    threading.Thread(target=http.serve_forever, daemon=True).start()
    yield SimpleNamespace(url=f"http://127.0.0.1:{http.server_port}", model="m", http=http,
                          tokenizer=models.prepare("smollm2-135m"))
    http.shutdown()
    http.server_close()


def test_token_nll_of_every_token_but_the_first(server):
    found = quality.token_nll(server, {"a": "abc", "b": "zz"})
    assert found.text.tolist() == ["a", "a", "b"] and found.place.tolist() == [1, 2, 1]
    assert found.nll.tolist() == [-logprob(ord(letter)) for letter in "bcz"]
    assert found.token[0] == f"<{ord('b')}>"
    assert server.http.bodies[-1]["prompt_logprobs"] == 0
    assert quality.token_nll(server, ["ab"]).text.tolist() == [0]


def test_a_text_that_the_engine_refuses(server):
    with pytest.raises(LabError, match="would not score a text of 1 words"):
        quality.token_nll(server, ["a" * 4000])


@pytest.fixture(scope="module")
def tokens(server):
    from tokenizers import Tokenizer

    whole = Tokenizer.from_file(str(server.tokenizer / "tokenizer.json"))
    return lambda text: whole.encode(text).ids


def test_evaluate_scores_each_choice_through_lm_eval(server, tokens):
    rows = quality.evaluate(server, ["course_passages"], limit=4)
    assert len(rows) == 4 and rows.name.nunique() == 4  # the first questions of four passages
    row = rows.iloc[0]
    wanted = [sum(map(logprob, tokens(f" {choice}"))) for choice in row.choices]
    assert row.logliks == pytest.approx(wanted)
    scaled = [value / len(choice) for value, choice in zip(wanted, row.choices, strict=True)]
    assert row.picked == int(np.argmax(scaled))
    scores = {each["metric"]: each["value"] for each in rows.attrs["scores"]}
    assert scores["acc_norm"] == pytest.approx(rows.right.mean())
    assert pd.concat([rows, rows]).attrs == rows.attrs  # a DataFrame in attrs would fail here
    assert "lm-eval run --model local-completions" in rows.attrs["command"]


def test_evaluate_scores_a_text_with_its_words(server, tokens):
    rows = quality.evaluate(server, ["course_prose"], limit=1)
    name, text = next(iter(quality.texts().items()))
    assert rows.name[0] == name and rows.words[0] == len(text.split())
    assert rows.loglik[0] == pytest.approx(sum(map(logprob, tokens(text))))
    perplexity = rows.attrs["scores"][0]["value"]
    assert perplexity == pytest.approx(np.exp(-rows.loglik[0] / rows.words[0]))


def test_public_tasks_need_the_hub(server, monkeypatch, capsys):
    import huggingface_hub.constants as constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    assert not quality.hub_answers()
    assert "does not answer" in capsys.readouterr().out
    with pytest.raises(LabError, match="wikitext could not be had"):
        quality.evaluate(server, ["wikitext"])
    monkeypatch.setattr(constants, "ENDPOINT", server.url)
    assert quality.hub_answers()


def test_the_answer_of_each_mark_is_kept(monkeypatch):
    asked = quality.open_questions()[:2]
    rows = pd.DataFrame({"text": [asked[0]["text"], " nothing "], "outcome": "ok", "error": ""})
    monkeypatch.setattr(quality.client, "streams", lambda *_, **__: rows)
    found = quality.answers(None, asked)
    assert found.answer[1] == "nothing" and not found.right[1] and found.facts[1] == 0
    assert found.passage.tolist() == [each["passage"] for each in asked]
    monkeypatch.setattr(quality.client, "streams",
                        lambda *_, **__: rows.assign(outcome="error", error="boom"))
    with pytest.raises(LabError, match="2 questions were not answered: boom"):
        quality.answers(None, asked)


def test_the_scores_of_lm_eval_as_a_table():
    found = harness._scores({"t": {"acc,none": 0.5, "acc_stderr,none": 0.1, "alias": "t",
                                   "word_perplexity,none": 9.0,
                                   "word_perplexity_stderr,none": "N/A"}})
    assert [each["metric"] for each in found] == ["acc", "word_perplexity"]
    assert found[0]["stderr"] == 0.1 and np.isnan(found[1]["stderr"])
