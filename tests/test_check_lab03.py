"""Checks, claims and figures of lab 03, on made-up counts and steps of which the truth is known."""

import math

import numpy as np
import pandas as pd
import pytest
from checks import assert_judges
from figures import assert_has_units_and_takes_axes

from helpers import dram, ledger, memory, models, plots, study
from helpers.check import lab03 as check
from helpers.ledger import lab03
from helpers.steps import step_times

SHAPE = models.config("shape:Qwen3-0.6B")
WEIGHTS = memory.decode_bytes_per_token(SHAPE, batch=1, context=0)
TOKEN = memory.kv_bytes_per_token(SHAPE)
STUDY = [study.value(f"study_dram_{key}") for key in ("batch_16", "batch_32", "kv_bf16", "kv_fp8")]


# The study's figures


def test_one_context_explains_the_four_figures():
    predicted = [memory.decode_bytes_per_token(SHAPE, batch=batch, context=dram.CONTEXT,
                                               kv_bytes=kv) / 1e6
                 for batch, kv in ((16, 2), (32, 2), (16, 2), (16, 1))]
    assert predicted == pytest.approx(STUDY, rel=0.0015)


@pytest.mark.parametrize("unit, with_head", [(2**20, False), (1e6, True), (2**20, True)])
def test_no_context_does_for_another_reading(unit, with_head):
    def worst(context):
        return max(abs(memory.decode_bytes_per_token(
            SHAPE, batch=batch, context=context, kv_bytes=kv, include_lm_head=with_head)
            / unit / figure - 1) for (batch, kv), figure in
            zip(((16, 2), (32, 2), (16, 2), (16, 1)), STUDY, strict=True))
    assert min(map(worst, range(200, 800))) > 0.01


# The checks


@pytest.mark.parametrize("name, right, wrong, given", [
    ("saved", WEIGHTS / 32e6, [WEIGHTS / 16e6, (WEIGHTS + 311164928) / 32e6, "27"],
     {"small": 16, "large": 32}),
    ("context", dram.CONTEXT, [512, 1000, "many"], {"mb": STUDY[0], "batch": 16}),
    ("batch", 16, [32, 8], {"bf16_mb": STUDY[2], "fp8_mb": STUDY[3]}),
    ("balance", WEIGHTS / TOKEN / dram.CONTEXT, [16, WEIGHTS / TOKEN], {"context": dram.CONTEXT})])
def test_checks_of_the_arithmetic(name, right, wrong, given, capsys):
    assert_judges(getattr(check, name), right, wrong, capsys, SHAPE, **given)


def steps(step_s, *, repeats=3, spread=0.01, batches=(1, 16, 32), contexts=(76, 524)):
    """Rows as the lab records them: step_s(batch, context) seconds, some percent off by repeat."""
    rows = [{"arm": arm, "batch": batch, "context": context, "repeat": repeat, "bandwidth": 1e12,
             "step_s": step_s(batch, context) * (1 + spread * (repeat - 1)),
             "weight_bytes": WEIGHTS, "cache_bytes": TOKEN}
            for arm in ("steps", "again") for batch in batches for context in contexts
            for repeat in range(repeats) for _ in range(batch)]
    return pd.DataFrame(rows)


def by_bytes(batch, context):
    return (WEIGHTS + batch * context * TOKEN) / 1e12


def same(batch, context):
    return 0.02 * batch


def test_checks_of_the_readers_run(capsys):
    points = lab03.points(steps(by_bytes))
    mine = points[(points.arm == "steps") & (points.context > 500)]
    ratio = lab03.fewer(steps(by_bytes))
    assert_judges(check.time_ratio, ratio, [2 * ratio, 1, "less"], capsys, mine, small=16, large=32)
    assert_judges(check.verdict, "supported", ["contradicted", True], capsys,
                  {"low": 0.7, "high": 0.8})
    assert_judges(check.verdict, "not decided", ["supported"], capsys,
                  {"low": np.nan, "high": np.nan})


# The claims


def verdicts(**runs):
    found = ledger.verdicts("03", runs)
    return found.verdict.tolist(), found


def test_time_that_goes_with_bytes():
    judged, found = verdicts(lab03_steps=steps(by_bytes))
    assert judged == ["supported", "supported"]
    assert found.value.tolist() == pytest.approx([lab03.fewer(steps(by_bytes)), 1], rel=1e-3)
    points = lab03.points(steps(by_bytes, spread=0))
    assert (points.least_s / points.token_s).to_numpy() == pytest.approx(1)


def test_time_that_does_not():
    assert verdicts(lab03_steps=steps(same))[0] == ["contradicted", "contradicted"]
    fixed = steps(lambda batch, context: 0.02)  # more than bytes explain: nothing but fixed
    assert verdicts(lab03_steps=fixed)[0] == ["supported", "contradicted"]


def test_a_control_that_strays_widens_the_interval():
    rows = steps(by_bytes)
    rows.loc[(rows.arm == "again") & (rows.repeat == 1) & (rows.batch == 32), "step_s"] *= 1.5
    value, low, high = lab03.faster(rows)
    assert lab03.strayed(rows) == pytest.approx(0.5)
    assert (low, high) == pytest.approx((0.5 * value, 1.5 * value))
    assert verdicts(lab03_steps=rows)[0] == ["not decided", "not decided"]


def test_one_repeat_decides_nothing():
    judged, found = verdicts(lab03_steps=steps(by_bytes, repeats=1))
    assert judged == ["not decided"] * 2 and found.value.notna().all()
    assert verdicts(lab03_steps=steps(by_bytes, batches=(1, 2)))[0] == ["not decided"] * 2


def counts(off=lambda batch, fp8: 1.0, repeats=3):
    rows = [{"arm": arm, "batch": batch, "tokens": tokens, "context": tokens + repeat - 1.0,
             "repeat": repeat, "weight_bytes": WEIGHTS, "cache_bytes": TOKEN / (1 + fp8),
             "read_bytes": off(batch, fp8) * (WEIGHTS + batch * (tokens + repeat - 1)
                                              * TOKEN / (1 + fp8))}
            for fp8, arm in enumerate(dram.ARMS) for batch, tokens in
            ((16, dram.CONTEXT), (32, dram.CONTEXT), (16, 128)) for repeat in range(repeats)]
    return pd.DataFrame(rows)


def test_counts_that_are_weights_and_cache():
    judged, found = verdicts(lab03_dram=counts(lambda batch, fp8: 1.003))
    assert judged == ["supported"] * 3
    assert found.value.tolist() == pytest.approx([88.89 / 116.42, 85.74 / 116.42, 0.003], rel=1e-3)


def test_counts_that_are_more():
    judged, _ = verdicts(lab03_dram=counts(lambda batch, fp8: 1 + batch / 16 + fp8))
    assert judged == ["contradicted"] * 3
    assert verdicts(lab03_dram=counts(repeats=1))[0] == ["not decided"] * 3


# The figures

LINES = pd.DataFrame({"BF16 cache": [900, 60], "FP8 cache": [880, 40.]}, index=[1, 64])
DOTS = pd.DataFrame({"source": ["the study", "counted"], "arm": ["BF16 cache", "FP8 cache"],
                     "batch": [16, 16], "mb": [116.0, 85.0]})
PARTS = pd.DataFrame({"weights": [5.0, 2], "cache": [3.0, 3], "output projection": [0.0, 1]},
                     index=["as it is", "changed"])
TIMES = pd.DataFrame({"machine": "mine", "batch": [1, 1, 2, 2], "repeat": [0, 1, 0, 1],
                      "token_s": [0.03, 0.032, 0.02, 0.021], "least_s": [0.01, 0.01, 0.006, 0.006]})


@pytest.mark.parametrize("draw, data, unit", [
    (plots.bytes_over_batch, [LINES, DOTS], "MB"), (plots.token_parts, [PARTS], "MB"),
    (plots.bytes_over_batch, [LINES, DOTS[:0]], "MB"), (plots.time_over_batch, [TIMES], "ms")])
def test_figures(draw, data, unit):
    assert_has_units_and_takes_axes(draw, *data, unit=unit)


def test_a_mark_for_each_source_and_bars_that_add_up():
    shown = [text.get_text() for text in plots.bytes_over_batch(LINES, DOTS).get_legend().texts]
    assert shown == ["BF16 cache", "FP8 cache", "the study", "counted"]
    written = [text.get_text() for text in plots.token_parts(PARTS).texts]
    assert {"8.0", "6.0"} <= set(written)


def test_a_step_is_timed_by_the_later_half_of_an_answer():
    times = [[1.0, 1.1, 1.3, 1.5, 1.7], [0.5], [0.1, 0.2, 0.6], [1, 2, 3, 4, 5, 6, 6.2, 6.4, 9]]
    tokens = [[1, 1, 1, 1, 1], [16], [1, 1, 2], [1] * 9]
    rows = pd.DataFrame({"chunk_times_s": times, "chunk_tokens": tokens}, index=[4, 5, 6, 7])
    found = step_times(rows)
    assert found[4] == pytest.approx(0.2) and found[6] == pytest.approx(0.2)
    assert math.isnan(found[5])
    assert found[7] == pytest.approx(0.6), "a hiccup at the end does not count"
