"""The decision record: claims only with an interval, decisions only on claims that hold."""

import math

import pandas as pd
import pytest

from helpers import decision, results
from helpers.errors import LabError

INF = math.inf


@pytest.mark.parametrize(("interval", "bounds", "expected"), [
    ((0.6, 0.8), {"below": 1}, "supported"),
    ((0.9, 1.1), {"below": 1}, "not decided"),
    ((1.1, 1.3), {"below": 1}, "contradicted"),
    ((0.97, 1.02), {"above": 0.95, "below": 1.05}, "supported"),
    ((0.90, 1.02), {"above": 0.95, "below": 1.05}, "not decided"),
    ((0.80, 0.94), {"above": 0.95, "below": 1.05}, "contradicted"),
    ((0.8, 1.2), {"above": 0.95, "below": 1.05}, "not decided"),
    ((1.0, 1.2), {"above": 1}, "not decided"),  # an end on the bound is not past it
    ((0.5, 1.0), {"above": 1}, "contradicted"),
    ((math.nan, math.nan), {"below": 1}, "not decided"),
    ((0, INF), {"below": 1}, "not decided"),
    ((INF, INF), {"below": 1}, "contradicted"),
])
def test_verdicts(interval, bounds, expected):
    assert decision.verdict(interval, **bounds) == expected


def test_what_is_no_claim():
    with pytest.raises(LabError, match="needs a bound"):
        decision.verdict((0, 1))
    with pytest.raises(LabError, match="wrong way round"):
        decision.verdict((1, 0), below=2)


@pytest.fixture
def record(capsys):
    form = decision.Record("Which one?", {"machine": "a <box>"})
    form.claim("cheaper", interval=(0.6, 0.8), below=1)
    form.claim("as good", interval=(-0.01, 0.2), below=0.1)
    form.claim("faster", interval=(0.4, 0.5), above=1)
    return form


def test_a_claim_is_filed_with_its_verdict(record, capsys):
    verdicts = [claim.verdict for claim in record.claims]
    assert verdicts == ["supported", "not decided", "contradicted"]
    assert record.claim("as good", interval=(-0.01, 0.05), below=0.1) == "supported"
    assert "✓ as good: supported (-0.01 to 0.05; must be below 0.1)" in capsys.readouterr().out
    assert len(record.claims) == 3  # in place of the old one


def test_a_decision_on_what_was_shown(record):
    record.decide("take it", because=["cheaper"])
    assert record.decision == "take it" and record.because == ["cheaper"]
    assert "take it" in str(record) and "a &lt;box&gt;" in record._repr_html_()


@pytest.mark.parametrize(("because", "says"), [
    (["cheaper", "as good"], "as good: not decided .* allows both answers"),
    (["faster"], "faster: contradicted .* says the opposite"),
    (["prettier"], "no claim 'prettier'.* It has: "),
    ([], "rests on nothing"),
])
def test_a_decision_on_anything_else_is_refused(record, because, says):
    with pytest.raises(LabError, match=f"(?s){says}"):
        record.decide("take it", because=because)
    assert record.decision == "none yet" and record.because == []


def test_one_repeat_has_no_interval_and_says_so(capsys):
    form = decision.Record("Which one?", {})
    form.claim("cheaper", interval=(math.nan, math.nan), below=1)
    assert "(no interval; must be below 1)" in capsys.readouterr().out
    with pytest.raises(LabError, match="(?s)Refused.*Fewer than three repeats"):
        form.decide("take it", because=["cheaper"])
    assert "none yet" in str(form)


def test_facts_name_machine_software_and_more():
    found = decision.facts([], load="128 tokens in", warm_up="8 requests")
    assert found["warm up"] == "8 requests"
    assert found["load"] == "128 tokens in" and "vllm" in found["software"] and found["machine"]


def test_losses_are_paired_by_place(monkeypatch, tmp_path):
    monkeypatch.setattr(results, "RUNS", tmp_path / "runs")
    monkeypatch.setattr(results, "RECORDED", tmp_path / "recorded")
    assert decision.losses("INT8").empty and decision.scores("INT8").empty
    monkeypatch.delenv("LAB_QUICK", raising=False)
    rows = [{"arm": arm, "text": text, "place": place, "nll": place + more + 0.01 * (place % 2)}
            for arm, more in (("BF16", 0), ("INT8", 0.02), ("4-bit", 0.4))
            for text in ("ants", "tides") for place in range(50)]
    results.record("08_nll", pd.DataFrame(rows).sample(frac=1, random_state=1), server=[])
    assert decision.losses("another").empty
    found = decision.losses("INT8")
    assert found.difference.to_dict() == pytest.approx({"INT8": 0.02, "4-bit": 0.4})
    assert set(found.pairs) == {100} and found.attrs["from"].startswith("yours, ")
    assert decision.verdict(decision.interval(found, "INT8"), below=0.05) == "supported"
    assert decision.verdict(decision.interval(found, "4-bit"), below=0.05) == "contradicted"
    assert all(map(math.isnan, decision.interval(found, "FP8")))


def test_scores_are_paired_question_by_question(monkeypatch, tmp_path):
    monkeypatch.setattr(results, "RUNS", tmp_path / "runs")
    monkeypatch.setattr(results, "RECORDED", tmp_path / "recorded")
    monkeypatch.delenv("LAB_QUICK", raising=False)
    rows = [{"arm": arm, "passage": passage, "question": q, "right": q < good, "picked": 1}
            for arm, good in (("BF16", 5), ("INT8", 4)) for passage in "abcd" for q in range(10)]
    results.record("08_choices", pd.DataFrame(rows), server=[])
    found = decision.scores("INT8").loc["INT8"]
    assert found.difference == pytest.approx(-4 / 42) and found.low < -0.1 < found.high
    assert found.pairs == 40


def test_the_model_is_named_where_an_engine_was():
    def name(command):
        return decision._model({"engines": [{"name": "4-bit", "command": "vllm serve ~/other"},
                                            {"name": "BF16", "command": command}]}, "BF16")
    assert name("X=1 \\\nvllm serve ~/.cache/smollm2-135m \\\n  --port 1") == "smollm2-135m"
    assert name("vllm serve ~/hub/models--Qwen--Qwen3-0.6B/snapshots/a1") == "Qwen/Qwen3-0.6B"
    assert name("") == decision._model({"engines": []}, "BF16") == decision._model({}, "BF16") == ""
