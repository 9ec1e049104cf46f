"""Lab 07's checks, claims, figures and arithmetic, on runs that are made here."""

import math

import numpy as np
import pandas as pd
import pytest
from checks import assert_judges
from figures import assert_has_units_and_takes_axes

from helpers import admission, ledger, plots, rows
from helpers.check import lab07 as check
from helpers.ledger import lab07
from helpers.plots import base

REFUSAL = "HTTP 429: Request dropped due to backpressure"
ABOUT = {"capacity": 8.0, "room": 12, "in_flight": 4, "seconds": 3, "limit_ttft_s": 0.5,
         "limit_tpot_s": 0.2}
RATES = {"below": 4.0, "at": 8.0, "above": 16.0}


def turn(arm, load, repeat, *, first_s=0.1, gap_s=0.05, refused=0):
    """Requests of one turn, 11 tokens each; of `refused` of them one in so many is refused."""
    made = []
    for number in range(round(ABOUT["seconds"] * RATES[load])):
        times = [first_s + gap_s * k for k in range(11)]
        answer = rows.failed(REFUSAL) if refused and number % refused == 0 else {
            **rows.latencies(times, 11), "chunk_tokens": None, "input_tokens": 5,
            "output_tokens": 11, "outcome": "ok", "error": ""}
        at = number / RATES[load]
        made.append({"engine": "", "sent_s": at, "intended_s": at, **answer})
    return rows.table(made, tool="client", settings={}).assign(
        arm=arm, load=load, rate=RATES[load], repeat=repeat, **ABOUT)


@pytest.fixture(scope="module")
def runs():
    """Without a limit all are late above the knee; with one, one in four is refused."""
    frames = []
    for repeat in range(3):
        gap = 0.05 + 0.001 * repeat
        for load in RATES:
            high = load == "above"
            for arm in ("no limit", "no limit again", "two engines"):
                frames.append(turn(arm, load, repeat, gap_s=gap, first_s=0.6 if high else 0.1))
            frames += [turn("admission", load, repeat, gap_s=gap, refused=4 if high else 0),
                       turn("one engine", load, repeat, gap_s=gap / 2)]
    return pd.concat(frames, ignore_index=True)


@pytest.fixture(scope="module")
def lost():
    """40 requests in 10 s; a node is lost after 3 s, missed after 4, and back after 7."""
    made = turn("admission", "above", 0).iloc[:20].assign(
        sent_s=np.arange(20) / 2, lost_s=3.0, missed_s=4.0, full_s=7.0)
    for at, error in ((6, "the stream was cut after 3 chunks"), (9, REFUSAL), (11, REFUSAL)):
        made.loc[at, ["outcome", "error", "ttft_s", "e2el_s"]] = ["error", error, None, None]
    return made


def test_checks(runs, capsys):
    assert_judges(check.little, 6, [4, 3], capsys, 4, 1.5)
    assert_judges(check.queued, 6, [3, 7, 12], capsys, 12, 0.5)
    assert_judges(check.queued, 0.6, [0.05, 240], capsys, 12, 0.05)
    assert_judges(check.queued, 1, [2], capsys, 12, 0.05)  # as admission.limits rounds it
    assert_judges(check.refused, 0.5, [2, 0.4], capsys, 16, 8)
    assert_judges(check.half, 0.375, [0.2, 0.625], capsys, 6.4, 8)
    first = runs[(runs.arm == "admission") & (runs.load == "above") & (runs.repeat == 0)]
    assert_judges(check.counted, 0.25, [0.5, 8], capsys, first)


def test_limits_by_arithmetic():
    assert admission.limits(16, 10, 0.75) == {"ongoing": 8, "queued": 7, "retry_after_s": 1}
    assert admission.limits(1, 2, 0.1) == {"ongoing": 1, "queued": 1, "retry_after_s": 1}
    assert admission.refused_share(20, 10) == 0.5
    assert admission.refused_share(20, 10, seconds=2, room=8) == pytest.approx(0.3)
    assert admission.refused_share(5, 10) == 0


def test_points(runs):
    found = lab07.points(runs).set_index(["arm", "load", "repeat"])
    assert len(found) == 45
    bound, free = found.loc["admission", "above", 0], found.loc["no limit", "above", 0]
    assert bound.refused_share == 0.25 and bound.lost_share == 0 and bound.good_share == 0.75
    assert free.refused_share == free.good_share == 0 and free.concurrency == 16


def at_capacity(sent_s):
    """A turn of requests sent so: 8 a second are done, each with 11 tokens in its last second."""
    finished = [max(sent + 1, 1 + number / 8) for number, sent in enumerate(sent_s)]
    made = [{"engine": "", "sent_s": sent, "intended_s": sent, **rows.latencies(
        [end - sent - 1 + k / 10 for k in range(11)], 11), "chunk_tokens": None, "input_tokens": 5,
        "output_tokens": 11, "outcome": "ok", "error": ""}
        for sent, end in zip(sent_s, finished, strict=True)]
    return rows.table(made, tool="client", settings={}).assign(**ABOUT | {"in_flight": 8})


def test_tokens_a_second_while_the_engines_are_full():
    crowd, bounded = np.arange(48) / 16, np.arange(24) / 8
    for sent_s in (crowd, bounded):
        assert lab07.loaded(at_capacity(sent_s)) == pytest.approx(8 * 11, rel=0.03)
    first, last = lab07.saturated(at_capacity(crowd))
    assert first == 7 / 16 and last == pytest.approx(1 + 40 / 8)
    assert math.isnan(lab07.loaded(at_capacity(np.arange(12) / 4)))  # four of eight at most
    slim = admission.slim(at_capacity(crowd))
    assert lab07.loaded(slim) == pytest.approx(8 * 11, rel=0.03)


def test_claims(runs, lost):
    both = {"lab07_admission": runs, "lab07_node_loss": lost}
    table = ledger.verdicts("07", both).set_index("what")
    words = list(table.verdict)
    assert words[:4] == ["supported"] * 4
    assert table.value.iloc[0] == 0.75  # of none at all without a limit
    assert table.value["share refused above the knee, over the prediction"] == pytest.approx(
        0.25 / 0.25)


def test_what_clients_see_of_a_loss(lost):
    seen = lab07.outage(lost)
    assert (seen.missed_s, seen.full_s, seen.broken, seen.refused) == (1, 4, 1, 2)
    assert seen["before: refused share"] == 0 and seen["out: refused share"] == 2 / 8
    assert lab07.outage(lost.assign(full_s=math.nan))["out: refused share"] == 2 / 14
    share, *ends = lab07.broken(lost)
    assert share == 1 / 20 and all(map(math.isnan, ends))  # one loss is one event


def test_it_is_said_whether_the_gap_closes(runs):
    told = lab07.in_words(runs)
    assert "over one engine" in told and "So: " in told
    with pytest.raises(KeyError):
        lab07.in_words(runs[runs.arm != "one engine"])
    assert "No front" in lab07.in_words(runs[runs.arm.isin(["one engine", "two engines"])])


def test_figures(runs, lost):
    assert_has_units_and_takes_axes(plots.admitted, lab07.points(runs), unit="second")
    assert_has_units_and_takes_axes(plots.node_loss, lost, unit="(s)")
    assert {"no limit", "admission"} <= set(base.COLOURS)
