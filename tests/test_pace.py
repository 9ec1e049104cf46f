"""Runs in steps of the engines: made-up turns whose steps are known; and the pause before each."""

import pytest
import sharing

from helpers import experiment, metrics, pace, profile


def test_engines_times_batch_over_step_is_the_throughput():
    runs = sharing.runs({"one engine": ("a", lambda batch: 0.02), "two engines": (
        "ab", lambda batch: 0.015)}, noise=0)
    found = pace.table(runs)
    one, two = (found[(found.arm == arm) & (found.concurrency == 8)].iloc[0]
                for arm in ("one engine", "two engines"))
    assert (one.engines, one.batch, one.step_s) == (1, 8, pytest.approx(0.02))
    assert (two.engines, two.batch, two.step_s) == (2, 4, pytest.approx(0.015))
    assert len(found) == 2 * 2 * 3
    product = found.engines * found.batch / found.step_s
    assert product.tolist() == pytest.approx(found.output_tok_per_s.tolist())
    whole = metrics.points(runs.drop(columns="engine"))
    assert sorted(product) == pytest.approx(sorted(whole.output_tok_per_s))


def test_steps_without_a_token_make_the_batch_smaller():
    found = pace.table(sharing.turn("one engine", "a", 8, steps=64)).iloc[0]
    assert found.batch == 4 and found.step_s == pytest.approx(0.005)


def test_a_crashed_arm_is_left_out():
    runs = sharing.turn("one engine", "a", 4)
    runs = runs.assign(outcome=["error", "ok", "ok", "ok"])
    assert pace.table(runs).batch.tolist() == [3]


@pytest.mark.parametrize("slower, expected", [(1, 2), (2, 1), (4, 0.5)])
def test_progress_between_apart_and_turns(slower, expected):
    runs = sharing.runs({"one engine": ("a", lambda batch: 0.01 + 0.001 * batch), "two engines": (
        "ab", lambda batch: slower * (0.01 + 0.001 * batch))})
    shared = runs[(runs.arm == "two engines") & (runs.concurrency == 8)]
    alone = runs[(runs.arm == "one engine") & (runs.concurrency == 4)]
    value, low, high = pace.progress(shared, alone)
    assert value == pytest.approx(expected, rel=0.02) and low < value < high


@pytest.mark.parametrize("name, factor", [("cpu", 1), ("gpu", 0.2)])
def test_the_pause_between_turns_is_shorter_on_a_gpu(monkeypatch, name, factor):
    slept = []
    monkeypatch.setattr(profile, "current", lambda: getattr(profile, name.upper()))
    monkeypatch.setattr(experiment.time, "sleep", slept.append)
    experiment._pause()
    assert slept == [factor * experiment.PAUSE_S]
