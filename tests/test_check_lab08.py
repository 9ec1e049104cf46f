"""The checks, claims and the figure of lab 08, on runs with a known answer."""

from types import SimpleNamespace

import matplotlib

matplotlib.use("agg")

import numpy as np
import pandas as pd
import pytest
from checks import assert_judges
from figures import assert_has_units_and_takes_axes

from helpers import experiment, ledger, memory, models, plots, rows
from helpers.check import lab08
from helpers.ledger import lab08 as claims

CONFIG = models.config("shape:Qwen3-0.6B")
SPEED = {"one engine": 100, "one engine again": 101, "one engine FP8": 110,
         "two engines MPS": 80, "two engines MPS FP8": 92}


def request(arm, engine, repeat, concurrency, speed, preemptions):
    """One request of 10 tokens that took as long as `speed` tokens a second say."""
    latencies = rows.latencies(list(np.linspace(0.1, 1, 10) * 10 / speed), 10)
    return {"arm": arm, "engine": engine, "repeat": repeat, "sent_s": 0.0, "intended_s": np.nan,
            "input_tokens": 20, "output_tokens": 10, "outcome": "ok", "error": "",
            "concurrency": concurrency, "preemptions": preemptions, "engine_cpu_s": 1.0,
            "wall_s": 1.0, "client_cpu_s": 0.1, "client_share": 0.1, "client_ok": True,
            "gpu_busy": np.nan, **latencies}


def measured(speed=SPEED, repeats=3, preempted=5):
    """Requests of every arm, calm (8 in flight) and in a crowd (16), where 16 bits preempt."""
    return pd.DataFrame([
        request(arm, engine, repeat, concurrency, each * (1 + 0.01 * repeat),
                (preempted + repeat) * (concurrency == 16 and not arm.endswith("FP8")))
        for repeat in range(repeats) for concurrency in (8, 16) for arm, each in speed.items()
        for engine in ("ab" if arm.startswith("two") else "a")])


POINTS = experiment.totals(measured())
HEAD = 2 * 151_936 * 1024  # bytes of the output projection
# two engines: two requests in the same time
GAIN = {"over": "two engines MPS FP8", "under": "two engines MPS"}
CASES = {
    "pool": (lab08.pool, 1024, [512, "a word"], [SimpleNamespace(kv_cache_tokens=1024)], {}),
    "by_bytes": (lab08.by_bytes, (93_589_440 + HEAD / 32) / (88_088_448 + HEAD / 16),
                 [93_589_440 / 88_088_448, 1.2, "a word"], [CONFIG], {"batch": 32, "context": 576}),
    "preempted": (lab08.preempted, ["two engines MPS", "one engine", "one engine again"],
                  [[], ["one engine"], list(SPEED)], [POINTS], {}),
    "gain": (lab08.gain, 92 / 80, [80 / 92, 1, "a word"], [POINTS], GAIN),
    "traffic": (lab08.traffic, 0.5, [2, 50, "a word"], [],
                {"token_bytes": 5e6, "tok_per_s": 1000, "bandwidth": 1e10}),
    "recording": (lab08.recording, 2 * 2 * 12 * 768 * 1500, [2 * 12 * 768 * 1500, "a word"],
                  [models.config("shape:whisper-small")], {}),
}


@pytest.mark.parametrize("name", CASES)
def test_checks(name, capsys):
    function, right, wrong, arguments, keywords = CASES[name]
    assert_judges(function, right, wrong, capsys, *arguments, **keywords)


def test_nobody_preempts_and_nobody_was_expected_to(capsys):
    calm = experiment.totals(measured(preempted=-9).assign(preemptions=0))
    lab08.preempted([], calm)
    assert capsys.readouterr().out.startswith("✓")


def verdicts(**settings):
    table = ledger.verdicts("08", {"lab08_precision": measured(**settings)})
    return table.set_index("claim")


def test_claims():
    table = verdicts()
    assert list(table.verdict) == ["supported"] * 2 + ["contradicted", "supported"]
    assert table.value.iloc[0] == pytest.approx(1.1)
    assert table.value.iloc[1] == pytest.approx(92 / 80)
    assert table.value.iloc[2] == pytest.approx(1.84)  # two engines do two requests at once
    assert table.value.iloc[3] == pytest.approx(5 * 4 - 5 + np.mean([0, 3, 6]))


def test_the_control_counts_for_no_claim():
    """Where FP8 changes nothing, no claim is supported."""
    same = dict.fromkeys(SPEED, 100)
    runs = measured(speed=same).assign(preemptions=4)
    table = ledger.verdicts("08", {"lab08_precision": runs})
    assert "supported" not in set(table.verdict[:2]) and table.verdict.iloc[3] != "supported"


def test_claims_without_repeats_or_arms_are_not_decided():
    assert set(verdicts(repeats=1).verdict) == {"not decided"}
    alone = {"one engine": 100, "one engine again": 101}
    assert set(verdicts(speed=alone).verdict) == {"not decided"}


def duet(repeats=3, fp8=1.2):
    """Text and speech side by side; what text does once speech is done is much, and no matter."""
    found = []
    for repeat in range(repeats):
        for arm, pace in (("16 bits", 1), ("16 bits again", 1), ("FP8", fp8)):
            seconds = (1 + 0.01 * repeat) / pace
            speech = {"chunk_times_s": [0.5 * seconds, seconds], "chunk_tokens": [2, 8]}
            text = {"chunk_times_s": [seconds, 1.1 * seconds], "chunk_tokens": [5, 500]}
            found += [{"arm": arm, "repeat": repeat, "engine": engine, "sent_s": 0.0,
                       "e2el_s": answer["chunk_times_s"][-1], "outcome": "ok", "error": "",
                       **answer} for engine, answer in (("speech", speech), ("text", text))]
    return pd.DataFrame(found)


def test_the_duet_gains_what_both_gain_on_average():
    table = claims.duets(duet())
    assert set(table.index.get_level_values(0)) == {"16 bits again", "FP8"}
    assert list(table.loc["FP8"].index) == ["speech", "text", "both"]
    assert table.loc["FP8"].ratio.tolist() == pytest.approx([1.2] * 3)
    assert table.loc["16 bits again"].ratio.tolist() == pytest.approx([1] * 3)
    claim = ledger.verdicts("08", {"lab08_whisper": duet()}).iloc[0]
    assert claim.verdict == "supported" and claim.value == pytest.approx(1.2)


def test_a_duet_without_repeats_or_with_a_crashed_engine_decides_nothing():
    crashed = pd.DataFrame([{"arm": "FP8", "repeat": 0, **rows.failed("crashed: no kernel")}])
    runs = duet()
    for some in (duet(repeats=1), pd.concat([runs[runs.arm != "FP8"], crashed])):
        table = ledger.verdicts("08", {"lab08_whisper": some})
        assert list(table.verdict) == ["not decided"]
    assert "FP8" not in claims.duets(pd.concat([runs[runs.arm != "FP8"], crashed])).index
    silent = runs.copy()
    silent["chunk_tokens"] = [tokens if engine == "text" else [0, 0] for tokens, engine in
                              zip(runs.chunk_tokens, runs.engine, strict=True)]
    assert claims.duets(silent).loc["FP8", "both"].isna().all()


PARTS = pd.DataFrame({arm: {"weights": memory.decode_bytes_per_token(CONFIG, batch=batch,
                                                                     context=0),
                            "cache": memory.kv_bytes(CONFIG, tokens=576, dtype_bytes=size)}
                      for arm, batch, size in (("one engine", 32, 2), ("two FP8", 16, 1))}).T


def test_token_bytes():
    assert_has_units_and_takes_axes(plots.token_bytes, PARTS, unit="MB")
    ax = plots.token_bytes(PARTS.assign(engines=2))  # other columns do not count
    assert [text.get_text() for text in ax.texts if "." in text.get_text()] == ["93.6", "88.1"]

