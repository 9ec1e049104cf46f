"""The checks of lesson 06: right, wrong, and unanswered."""

import pandas as pd
import pytest
from checks import assert_judges

from helpers import check, symptoms
from helpers.check import lesson06
from helpers.rows import latencies, table

SLO = {"ttft_s": 0.2, "tpot_s": 0.05}


def run(ttfts_s):
    rows = [{"intended_s": float(k), "sent_s": float(k), "chunk_tokens": None, "outcome": "ok",
             "error": "", "input_tokens": 8, "output_tokens": 2,
             **latencies([first_s, first_s + 0.02], 2)} for k, first_s in enumerate(ttfts_s)]
    return table(rows, tool="client", settings={})


RUN = run([0.1, 0.1, 0.3, 0.1])  # three good in 3.12 s
RUNS = pd.DataFrame({"rate": [1.0, 2.0, 4.0], "good_share": [1, 0.97, 0.3], "valid": [True] * 3})
FOUND = symptoms.Diagnosis("queue", "the waiting queue", dict.fromkeys(symptoms.SIGNS, "same"))

# check, right answer, wrong answers, further arguments
CASES = {
    "little": (lesson06.little, 0.75, [12.0, 1 / 0.75], (3, 4)),
    "growth": (lesson06.growth, 0.5, [1 / 3, 1.5], (12, 8)),
    "goodput": (lesson06.goodput, 3 / 3.12, [3, 1, 4 / 3.12], (RUN, SLO)),
    "goodput of none": (lesson06.goodput, 0, [1], (run([0.5, 0.6]), SLO)),
    "knee": (lesson06.knee, 2, [4, 1, 0], (RUNS,)),
    "no knee": (lesson06.knee, 0, [1], (RUNS.assign(good_share=0.1),)),
    "look_first": (lesson06.look_first, "queue", ["prefill", "que"], (FOUND,)),
}


@pytest.mark.parametrize("name", CASES)
def test_right_wrong_and_unanswered(name, capsys):
    function, right, wrong, arguments = CASES[name]
    assert_judges(function, right, wrong, capsys, *arguments)


def test_hints_tell_what_is_missing():
    with pytest.raises(check.WrongAnswer, match="3 requests are good; how many is that a second"):
        lesson06.goodput(3, RUN, SLO)
    with pytest.raises(check.WrongAnswer, match="how long does the engine need"):
        lesson06.growth(1 / 3, 12, 8)
    with pytest.raises(check.WrongAnswer, match="p95 TTFT same, ITL same"):
        lesson06.look_first("prefill", FOUND)
