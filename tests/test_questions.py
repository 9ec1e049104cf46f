"""The course's questions as requests, and what each loses; the engines are stand-ins."""

import pandas as pd
import pytest

from helpers import client, quality, questions


def test_every_question_is_there_and_half_have_their_passage():
    asked = questions.course()
    assert len(asked) == 30 * 7 and asked.text.is_unique
    with_passage = asked.text.str.split().str.len() > 50
    assert 0.45 < with_passage.mean() < 0.55
    assert all(q in t and t.endswith("\nAnswer:") for q, t in zip(asked.question, asked.text,
                                                                   strict=True))


@pytest.mark.parametrize("per_passage", [1, 4])
def test_fewer_a_passage(per_passage):
    asked = questions.course(per_passage=per_passage)
    assert (asked.groupby("passage").size() == per_passage).all()
    assert asked.text.str.startswith("Question").mean() == pytest.approx(0.5)


def test_losses_are_of_the_answers_tokens_only(monkeypatch):
    """Tokens of the question differ by 9 nats, those of the answer by 0.5."""
    asked = questions.course(per_passage=1)[:4]

    def streams(server, prompts, **_):
        return pd.DataFrame({"text": [" two words", "", " more", " yes"],
                             "output_tokens": [2, 1, 1, 1]})

    def token_nll(server, texts, **_):
        gap = {"full": 0, "fp8": 1}[server]
        return pd.DataFrame([
            {"text": name, "place": place, "token": "t",
             "nll": 1 + gap * (0.5 if place > 10 - text.count(" two") - 1 else 9)}
            for name, text in texts.items() for place in range(1, 11)])

    monkeypatch.setattr(client, "streams", streams)
    monkeypatch.setattr(quality, "token_nll", token_nll)
    found = questions.losses(asked, reference="full", other="fp8")
    assert list(found.answer) == [" two words", " more", " yes"]  # no token, no loss
    assert list(found.again) == [0, 0, 0]
    assert found.loss.tolist() == pytest.approx([0.5, 0.5, 0.5])
