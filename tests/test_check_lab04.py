"""Lab 04: its checks, its claims and its figure, on turns whose rates are known."""

import math
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from checks import assert_judges
from figures import assert_has_units_and_takes_axes

from helpers import ledger, models, overlap, plots
from helpers.check import lab04 as check
from helpers.ledger import lab04

WHISPER = models.config("shape:whisper-small")
TOKENS = 10  # of an answer


def rows(engine, answer_s, *, places=2, waves=4, late_s=0.0):
    """Requests of a closed loop: each answer takes answer_s, its tokens come at equal gaps."""
    times = [answer_s * (token + 1) / TOKENS for token in range(TOKENS)]
    return [{"engine": engine, "sent_s": late_s + wave * answer_s, "e2el_s": answer_s,
             "chunk_times_s": times, "chunk_tokens": [1] * TOKENS, "output_tokens": TOKENS,
             "outcome": "ok", "ttft_s": times[0]}
            for wave in range(waves) for _ in range(places)]


def turn(arm, repeat, services, *, cpu_s=6.0, places=2):
    requests = pd.DataFrame([row for engine, answer_s in services.items()
                             for row in rows(engine, answer_s, places=places)])
    return requests.assign(arm=arm, repeat=repeat, concurrency=2, engine_cpu_s=cpu_s, wall_s=4.0,
                           cores=2, gpu_busy=math.nan)


def run(repeats=3, jitter=0.001):
    """Alone an answer takes 1 s; beside speech 1.6, and speech 1.25; alike 2 each; halves 1."""
    frames = []
    for repeat in range(repeats):
        slow = 1 + jitter * repeat
        frames += [turn("text alone", repeat, {"text": 1.0}),
                   turn("speech alone", repeat, {"speech": 1.0}),
                   turn(lab04.MIXED, repeat, {"text": 1.6 * slow, "speech": 1.25}),
                   turn(lab04.ALIKE, repeat, {"text": 2.0 * slow, "text b": 2.0}),
                   turn(lab04.HALVES, repeat, {"half a": 1.0, "half b": 1.0}, places=1),
                   turn(lab04.BOTH, repeat, {"text": 1.5, "text b": 1.5})]
    return pd.concat(frames, ignore_index=True)


def test_the_stretch_begins_with_the_last_and_ends_with_the_first_empty_place():
    both = pd.DataFrame(rows("a", 1.0) + rows("b", 3.0, late_s=0.5))
    assert overlap.stretch(both) == (0.5, 4.0)  # a's last wave is sent at 3 s, and ends at 4 s
    with pytest.raises(ValueError, match="never loaded"):
        overlap.stretch(pd.DataFrame(rows("a", 1.0) + rows("b", 1.0, late_s=9)))
    with pytest.raises(ValueError, match="never loaded"):
        overlap.stretch(both[:0])


def test_rates_count_the_tokens_of_the_stretch_alone():
    both = pd.DataFrame(rows("a", 1.0) + rows("b", 3.0)).assign(arm="x", repeat=0)
    found = overlap.rates(both).set_index("engine")
    assert list(found.seconds) == [4, 4]
    assert found.tok_per_s["a"] == pytest.approx(20)  # two places, ten tokens a second
    assert found.tok_per_s["b"] == pytest.approx(26 / 4)  # at 0.3 s, 0.6 s, ... 3.9 s: 13 tokens
    unknown = both.assign(chunk_tokens=None, output_tokens=2 * TOKENS)
    assert overlap.rates(unknown).set_index("engine").tok_per_s["a"] == pytest.approx(40)
    shipped = overlap.rates(both.drop(columns=["chunk_times_s", "chunk_tokens"]))
    assert list(shipped.tok_per_s) == pytest.approx(list(found.tok_per_s))
    both.loc[0, "outcome"] = "error"
    assert overlap.rates(both).empty


def test_while_loaded_leaves_out_what_had_the_device_to_itself():
    long = pd.DataFrame(rows("a", 1.0, waves=9) + rows("b", 1.0)).assign(arm="x", repeat=0)
    found = overlap.while_loaded(long)
    assert found.groupby("engine").size().to_dict() == {"a": 8, "b": 8}
    assert found.sent_s.max() == 3.0  # b's last wave ends at 4 s
    long.loc[0, "outcome"] = "error"
    with pytest.raises(ValueError):
        overlap.while_loaded(long)


def test_a_control_that_strayed_in_one_repeat_widens_what_is_claimed():
    found = run()
    off = (found.arm == lab04.HALVES) & (found["repeat"] == 1)
    found.loc[off, ["sent_s", "e2el_s"]] *= 2
    found.loc[off, "chunk_times_s"] = found[off].chunk_times_s.map(lambda ts: [2 * t for t in ts])
    assert lab04.strayed(found) == pytest.approx(0.5)
    value, low, high = lab04.counted(lab04.progress(lab04.MIXED))(found)
    assert (low, high) == pytest.approx((value / 2, value * 1.5))
    verdicts = ledger.verdicts("04", {"lab04_mixed": found})
    assert verdicts.verdict[2] == "not decided" and verdicts.high[0] > verdicts.value[0] * 1.49


def test_the_progress_of_known_turns():
    found = run()
    assert lab04.of_service("text")(found)[0] == pytest.approx(1 / 1.6, rel=0.05)
    assert lab04.of_service("speech")(found)[0] == pytest.approx(1 / 1.25, rel=0.05)
    assert lab04.progress(lab04.MIXED)(found)[0] == pytest.approx(1 / 1.6 + 1 / 1.25, rel=0.05)
    assert lab04.progress(lab04.HALVES)(found)[0] == pytest.approx(1)
    assert lab04.progress(lab04.ALIKE)(found)[0] == pytest.approx(1, rel=0.02)
    assert lab04.over_one_engine(found)[0] == pytest.approx(0.75, rel=0.02)
    assert lab04.better_than_alike(found)[0] == pytest.approx(0.425, rel=0.1)


def test_busy_is_the_gpus_where_there_is_one():
    found = run()
    assert lab04.busy(found).to_numpy() == pytest.approx(np.full((3, 2), 0.75))
    assert lab04.work(found)[0] == pytest.approx(0.75 * (1 / 1.6 + 1 / 1.25), rel=0.05)
    assert lab04.busy(found.assign(gpu_busy=0.5)).to_numpy() == pytest.approx(np.full((3, 2), 0.5))
    assert lab04.filled([0.5, 0.3]) == 2 and lab04.filled([1, 0.6]) == 1.25


def test_verdicts_of_known_turns_and_of_a_quick_run():
    verdicts = ledger.verdicts("04", {"lab04_mixed": run()})
    assert list(verdicts.verdict[:4]) == ["supported"] * 4
    assert verdicts.verdict[5] == "supported"
    quick = ledger.verdicts("04", {"lab04_mixed": run(repeats=1)})
    assert set(quick.verdict) == {"not decided"} and quick.value.notna().all()
    no_speech = run()[lambda r: ~r.arm.isin(["speech alone", lab04.MIXED])]
    lost = ledger.verdicts("04", {"lab04_mixed": no_speech})
    assert list(lost.verdict[:5]) == ["not decided"] * 5 and lost.value[:5].isna().all()


def test_checks(capsys):
    found = run()
    told = "Maximum concurrency for 448 tokens per request: 14.92x"
    engine = SimpleNamespace(wait=lambda: None, log=lambda: told)
    fit = 2**30 / (12 * 2 * 768 * 2 * (448 + 1500))
    assert_judges(check.fit, fit, [11.67, "a word"], capsys, WHISPER, engine)
    assert_judges(check.filled, 2 / 1.5, [1, 2, "a word"], capsys, [0.75, 0.75])
    right = lab04.progress(lab04.MIXED)(found)[0]
    assert_judges(check.progress, right, [right / 2, "a word"], capsys, found)
    for (low, high), verdict in {(1.1, 1.3): "supported", (0.9, 1.3): "not decided",
                                 (0.7, 0.9): "contradicted",
                                 (math.nan, math.nan): "not decided"}.items():
        others = {"supported", "contradicted", "not decided"} - {verdict}
        assert_judges(check.verdict, verdict, others, capsys, low, high)


def test_the_figure():
    found = pd.DataFrame([
        {"machine": machine, "arm": arm, "engine": engine, "kept": 0.6, "value": 1.2, "low": low,
         "high": 1.3} for machine in ("this one", "another") for arm in (lab04.MIXED, lab04.ALIKE)
        for engine, low in (("text", 1.1), ("speech", math.nan))])
    assert_has_units_and_takes_axes(plots.kept, found, unit="part of its speed alone")
    assert_has_units_and_takes_axes(plots.kept, found[:2], unit="normalized progress")
