"""Checks, claims and figures of lab 06, on made-up runs of which the truth is known."""

import math

import numpy as np
import pandas as pd
import pytest
from checks import assert_judges
from figures import assert_has_units_and_takes_axes

from helpers import check as checks
from helpers import ledger, models, partitions
from helpers.check import lab06 as check
from helpers.ledger import lab06
from helpers.plots import lab06 as figures

TRUTH = {("shared", "arithmetic"): 4.0, ("shared", "memory"): 3.0,
         ("split", "arithmetic"): 1.02, ("split", "memory"): 1.3}
NEED = {"weight_bits": 16, "cache_bits": 16, "users": 30, "tokens": 2048, "rest_bytes": 2 * 2**30}


def made(truth=TRUTH, *, repeats=3, wall=1.2):
    """Runs whose token takes 20 ms, `wall` times that in split; truth: how much longer beside."""
    rows, noise = [], np.random.default_rng(1)
    for repeat in range(repeats):
        for arm in ("shared", "split"):
            for kind in ("none", "arithmetic", "memory", "none again"):
                token_s = 0.02 * (wall if arm == "split" else 1) * truth.get((arm, kind), 1)
                token_s *= noise.uniform(0.995, 1.005)
                rows += [{"engine": arm, "arm": arm, "neighbour": kind, "concurrency": kind,
                          "repeat": repeat, "outcome": "ok", "sent_s": float(n), "intended_s": None,
                          "ttft_s": token_s, "tpot_s": token_s, "itl_s": [token_s] * 31,
                          "e2el_s": 32 * token_s, "input_tokens": 128, "output_tokens": 32,
                          "engine_cpu_s": 64 * token_s * 1.5, "wall_s": 64 * token_s}
                         for n in range(2)]
    rows.append({"arm": "split", "outcome": "error", "repeat": 0})  # a crashed arm's row
    return pd.DataFrame(rows)


@pytest.fixture(scope="module")
def runs():
    return made()


@pytest.mark.parametrize("name, right, wrong, arguments, keywords", [
    ("offered", 8, [2, 4, "many"], (2, 4), {}),
    ("profile", "1g.35gb", ["1g.18gb", "7g.141gb", 35], (
        "H200", models.config("shape:Llama-3.1-8B")), NEED),
    ("pressed", 1.25, [1, 2.5], (10e9, 15e9, 20e9), {}),
    ("pressed", 1, [0.5, 0.6], (5e9, 5e9, 20e9), {}),
    ("turns", 2, [1, 3], (2,), {}),
])
def test_checks(name, right, wrong, arguments, keywords, capsys):
    assert_judges(getattr(check, name), right, wrong, capsys, *arguments, **keywords)


def test_slowdown_is_judged_by_the_readers_own_run(runs, capsys):
    assert_judges(check.slowdown, 4.0, [2, 0.25], capsys, runs, "shared", "arithmetic")


@pytest.mark.parametrize("truth, right, wrong", [
    (TRUTH, {"compute": "yes", "bandwidth": "no"}, {"compute": "yes", "bandwidth": "yes"}),
    (TRUTH | {("split", "memory"): 1.0}, {"compute": "yes", "bandwidth": "yes"},
     {"compute": "no", "bandwidth": "yes"}),
])
def test_row(truth, right, wrong, capsys):
    found = lab06.slowdowns(made(truth))
    assert_judges(check.row, right, [wrong, {"compute": "maybe", "bandwidth": "no"}], capsys, found)


def test_a_row_left_open_in_part_is_unanswered(runs, capsys):
    check.row({"compute": "yes", "bandwidth": ...}, lab06.slowdowns(runs))
    assert capsys.readouterr().out.startswith("○")


def test_one_repeat_decides_nothing(capsys):
    found = lab06.slowdowns(made(repeats=1))
    check.row({"compute": "not decided", "bandwidth": "not decided"}, found)
    assert "✓" in capsys.readouterr().out
    with pytest.raises(checks.WrongAnswer):
        check.row({"compute": "yes", "bandwidth": "no"}, found)


# The claims


def test_slowdowns_find_the_truth_and_the_control(runs):
    found = lab06.slowdowns(runs).set_index(["arm", "neighbour"])
    for pair, truth in TRUTH.items():
        assert found.value[pair] == pytest.approx(truth, rel=0.02)
    assert found.felt.to_dict() == {**{pair: True for pair in TRUTH},
                                    ("split", "arithmetic"): bool(
                                        found.felt["split", "arithmetic"]),
                                    ("shared", "none again"): False,
                                    ("split", "none again"): False}
    assert found.smallest.max() < 0.02


def test_claims(runs):
    verdicts = ledger.verdicts("06", {"lab06_neighbours": runs}).verdict.tolist()
    assert verdicts == ["supported"] * 5
    quiet = made(dict.fromkeys(TRUTH, 1.0), wall=1.0)
    verdicts = ledger.verdicts("06", {"lab06_neighbours": quiet}).verdict.tolist()
    assert verdicts[:4] == ["contradicted", "supported", "contradicted", "contradicted"]


def test_claims_of_a_run_that_lacks_an_arm_decide_nothing(runs):
    alone = ledger.verdicts("06", {"lab06_neighbours": runs[runs.arm == "shared"]})
    assert alone.verdict.tolist() == ["supported"] + ["not decided"] * 4


def test_a_control_that_strayed_far_decides_nothing(runs):
    noisy = runs.copy()
    wild = (noisy.neighbour == "none again") & (noisy.repeat == 1)
    noisy.loc[wild, ["tpot_s", "e2el_s"]] *= 6
    found = lab06.slowdowns(noisy)
    assert found.smallest.min() > 4 and not found.felt.any()
    verdicts = ledger.verdicts("06", {"lab06_neighbours": noisy}).verdict
    assert verdicts.tolist() == ["not decided"] * 5


def test_price_is_of_a_whole_answer(runs):
    value, low, high = lab06.price(runs)
    assert low < 1.2 < high and value == pytest.approx(1.2, rel=0.02)
    assert lab06.pays("memory")(runs)[0] == pytest.approx(1.2 * 1.3 / 3, rel=0.02)


def test_in_words_says_longer_and_where_there_is_no_interval(runs):
    assert "longer" in lab06.in_words(runs) and "nan" not in lab06.in_words(made(repeats=1))


def test_work_is_cores_and_cpu_a_token(runs):
    found = lab06.work(runs)
    assert found.cores.tolist() == pytest.approx([1.5] * len(found))
    assert found.cpu_ms_per_token["shared", "none"] == pytest.approx(30, rel=0.01)


# The figures


def test_figures(runs):
    found = lab06.slowdowns(runs)
    assert_has_units_and_takes_axes(figures.neighbours, found, unit="ratio")
    assert_has_units_and_takes_axes(figures.neighbours, lab06.slowdowns(made(repeats=1)),
                                    unit="ratio")
    assert_has_units_and_takes_axes(figures.isolation, partitions.isolation(), unit="kept apart")


def test_no_interval_is_drawn_hollow():
    ax = figures.neighbours(lab06.slowdowns(made(repeats=1)))
    dots = [line for line in ax.lines if line.get_marker() == "o"]
    assert dots and all(line.get_markerfacecolor() == "none" for line in dots)
    assert not math.isnan(ax.get_xlim()[1])
