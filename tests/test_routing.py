"""Rules on a text, and how they are tuned and judged, on questions with known losses."""

import math

import numpy as np
import pandas as pd
import pytest

from helpers import routing
from helpers.routing import Rule


def questions(effect=0.1, noise=0.02, groups=20, seed=0):
    """Texts of 5 to 40 words; those of more than 20 lose `effect` more."""
    dice = np.random.default_rng(seed)
    rows = [{"passage": group, "text": f"{group} " + "word " * (count - 1),
             "loss": 0.05 + effect * (count > 20) + noise * dice.normal()}
            for group in range(groups) for count in dice.integers(5, 40, 6)]
    return pd.DataFrame(rows)


@pytest.mark.parametrize(("text", "found"), [
    ("Why does it rain in 2 of 10 weeks?", {"words": 9, "numbers": 2, "reasons": 1}),
    ("How, and why?", {"words": 3, "numbers": 0, "reasons": 2}),
    ("Whyever shown", {"words": 2, "numbers": 0, "reasons": 0}),
    ("", {"words": 0, "numbers": 0, "reasons": 0, "letters": 0})])
def test_measures(text, found):
    assert {name: routing.MEASURES[name](text) for name in found} == found


def test_chance_knows_nothing_but_is_the_same_again():
    values = [routing.chance(f"text {n}") for n in range(1000)]
    assert values[3] == routing.chance("text 3")
    assert 0.45 < np.mean(values) < 0.55 and min(values) >= 0 and max(values) <= 1


def test_a_rule_decides_by_its_measure():
    assert Rule("words", 3).engine("one two three") == "simple"
    assert Rule("words", 2.5).engine("one two three") == "hard"
    assert Rule("words", 3, flipped=True).engine("one two three") == "hard"
    assert "more than 3" in str(Rule("words", 3)) and "at most" in str(Rule("words", 3, True))


def test_tuning_finds_what_the_losses_depend_on():
    rule = routing.tune(questions())
    assert (rule.measure, rule.flipped) == ("words", False) and 17 < rule.above < 24
    other_way = questions().assign(loss=lambda table: -table.loss)
    assert routing.tune(other_way).flipped


def test_tuning_needs_texts_that_differ():
    with pytest.raises(ValueError, match="alike"):
        routing.tune(questions().assign(text="the same"))


def test_judging_where_simple_ones_do_lose_less():
    found = routing.judge(questions(seed=1), routing.tune(questions(seed=2)))
    assert found.high < 0 and found.low < -0.1 < found.high + 0.05
    assert found.difference == pytest.approx(found.loss_simple - found.loss_hard)
    assert found.best <= found.routed < found.random
    assert found.random == pytest.approx(found.share * questions(seed=1).loss.mean())


def test_judging_where_nothing_is_to_be_found():
    """Tuned on one half it always looks good there; on the other its interval holds 0."""
    held = 0
    for seed in range(20):
        tuning, judging = questions(effect=0, seed=seed), questions(effect=0, seed=100 + seed)
        rule = routing.tune(tuning)
        assert routing.gain(tuning.loss, [rule.engine(t) == "simple" for t in tuning.text]) > 0
        found = routing.judge(judging, rule)
        held += found.low < 0 < found.high
    assert held >= 16


def test_a_rule_that_sends_all_one_way_decides_nothing():
    found = routing.judge(questions(), Rule("words", 1000))
    assert found.share == 1 and math.isnan(found.low) and found.difference == 0


def test_gain():
    assert routing.gain([0, 0, 1, 1], [True, True, False, False]) == 0.25
    assert routing.gain([0, 1], [False, False]) == 0
