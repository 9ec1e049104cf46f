"""Lab 01: its checks, its claims and its figures, on turns of which the truth is known."""

import matplotlib

matplotlib.use("agg")

import math

import numpy as np
import pandas as pd
import pytest
from checks import assert_judges
from figures import assert_has_units_and_takes_axes

from helpers import check, decision, experiment, ledger, memory, models, plots
from helpers.check import lab01 as checks
from helpers.ledger import lab01

SHAPE = models.config("shape:Qwen3-0.6B")
ONE, TWO, AGAIN = "one engine", "two engines", "one engine again"


def turn(arm, repeat, in_flight, engines, rate, **columns):
    """A turn in which each engine yields `rate` tokens a second: 4 answers of 10 for each place."""
    each = in_flight // len(engines)
    round_s = 10 * each / rate
    rows = [{"arm": arm, "repeat": repeat, "concurrency": in_flight, "engine": engine,
             "sent_s": n * round_s, "ttft_s": round_s / 10, "e2el_s": round_s, "outcome": "ok",
             "tpot_s": round_s / 10, "itl_s": [round_s / 10] * 9, "error": "",
             "chunk_times_s": list(np.arange(1, 11) * round_s / 10), "output_tokens": 10.0,
             "input_tokens": 5.0, "intended_s": math.nan, "preemptions": 0.0,
             "engine_cpu_s": 2 * round_s, "wall_s": 4 * round_s, "client_cpu_s": 0.1,
             "client_share": 0.1, "client_ok": True, "gpu_busy": 0.5, "cores": 4,
             "bandwidth": 1e9, "weight_bytes": 1e6, "cache_bytes": 1e5}
            for engine in engines for n in range(4) for _ in range(each)]
    return pd.DataFrame(rows).assign(**columns)


def made(two_rate, repeats=3, half=60, **columns):
    """One engine gives 100 tokens a second at 8 in flight and `half` at 4; each of two `two_rate`
    at 8. Repeats differ a little."""
    luck = [1, 1.01, 0.99][:repeats]
    turns = [turn(arm, repeat, load, engines, rate * luck[repeat], **columns)
             for repeat in range(repeats) for load in (4, 8)
             for arm, engines, rate in ((ONE, "a", half if load == 4 else 100),
                                        (TWO, "ab", two_rate),
                                        (AGAIN, "a", half if load == 4 else 100))]
    return pd.concat(turns, ignore_index=True)


# The claims


def test_two_that_take_turns():
    runs = made(two_rate=30)
    assert lab01.faster(runs)[0] == pytest.approx(0.6)
    assert lab01.progress(runs) == pytest.approx((1, 1, 1))
    assert lab01.neighbour(runs)[0] == pytest.approx(0.5)
    verdicts = ledger.verdicts("01", {"lab01_sweep": runs}).set_index("claim").verdict
    assert verdicts.iloc[0] == "supported"  # two do less than one
    assert verdicts.iloc[1] != "supported"  # and sharing is not useful
    assert verdicts.iloc[2] == "supported"  # a neighbour costs more than a tenth


def test_two_that_do_not_feel_each_other():
    runs = made(two_rate=60)
    assert lab01.faster(runs)[0] == pytest.approx(1.2)
    assert lab01.progress(runs)[0] == pytest.approx(2)
    verdicts = ledger.verdicts("01", {"lab01_sweep": runs}).verdict
    assert list(verdicts[:3]) == ["contradicted", "supported", "contradicted"]


def test_an_arm_that_differs_from_itself_shows_nothing():
    runs = made(two_rate=51)
    runs = runs[runs.arm != AGAIN]
    again = pd.concat([turn(AGAIN, repeat, load, "a", 1.2 * rate) for repeat in range(3)
                       for load, rate in ((4, 60), (8, 100))])
    together = pd.concat([runs, again])
    found = experiment.against(experiment.totals(together), base=ONE)
    pair = found[(found.arm == TWO) & (found.concurrency == 8)].iloc[0]
    assert pair.low > 1 and pair.smallest == pytest.approx(0.2, abs=0.02) and not pair.seen
    assert lab01.faster(together) == pytest.approx((1.02, 0.81, 1.23), abs=0.01)
    assert ledger.verdicts("01", {"lab01_sweep": together}).verdict[0] == "not decided"


def test_no_control_no_verdict():
    runs = made(30)
    assert math.isnan(lab01.faster(runs[runs.arm != AGAIN])[1])


def test_a_quick_run_decides_nothing():
    verdicts = ledger.verdicts("01", {"lab01_sweep": made(30, repeats=1)})
    assert set(verdicts.verdict) == {"not decided"} and verdicts.value.notna().all()


def test_where_no_gpu_answers_its_claim_is_not_decided():
    verdicts = ledger.verdicts("01", {"lab01_sweep": made(30, gpu_busy=math.nan)})
    assert verdicts.verdict.iloc[-1] == "not decided" and math.isnan(verdicts.value.iloc[-1])


def test_a_pair_that_crashed_decides_nothing():
    runs = made(30)
    crashed = pd.DataFrame([{"arm": TWO, "repeat": 0, "concurrency": 0, "engine": "",
                             "outcome": "error", "error": "crashed: out of memory"}])
    runs = pd.concat([runs[runs.arm != TWO], crashed], ignore_index=True)
    verdicts = ledger.verdicts("01", {"lab01_sweep": runs})
    assert set(verdicts.verdict[:5]) == {"not decided"}
    with pytest.raises(ValueError, match="the same services"):
        lab01.progress(runs)


def test_half_the_load_has_to_be_there():
    runs = made(30)
    with pytest.raises(ValueError, match="the same services"):
        lab01.progress(runs[runs.concurrency == 8])


def test_traffic_is_weights_for_the_batch_and_the_cache():
    seen = lab01.traffic(made(30)).set_index(["arm", "concurrency"]).loc[[(ONE, 8), (TWO, 8)]]
    assert seen.batch.tolist() == pytest.approx([8] * 3 + [4] * 3)
    assert seen.bytes_per_token.tolist() == pytest.approx([1e6 / 8 + 1e5] * 3 + [3.5e5] * 3)
    assert seen.share.iloc[0] == pytest.approx(100 * 2.25e5 / 1e9)
    assert seen.share.iloc[3] == pytest.approx(2 * 30 * 3.5e5 / 1e9)


def test_rows_that_do_not_know_their_machine_decide_nothing_of_it():
    bare = made(30).drop(columns=["cores", "bandwidth", "weight_bytes", "cache_bytes"])
    empty = made(30, cores=math.nan, bandwidth=math.nan)
    for runs in (bare, empty):
        verdicts = ledger.verdicts("01", {"lab01_sweep": runs}).verdict
        assert list(verdicts[3:5]) == ["not decided"] * 2 and verdicts[0] == "supported"


def test_cores_and_cpu_time_of_a_token():
    hosts = lab01.hosts(made(30)).set_index(["arm", "repeat", "concurrency"])
    assert hosts.cores_used[ONE, 0, 8] == pytest.approx(0.5)
    assert hosts.cores_used[TWO, 0, 8] == pytest.approx(1)  # both engines
    assert hosts.cpu_s_per_token[ONE, 0, 8] == pytest.approx(2 * 0.8 / 320)
    assert lab01.cores_used(made(30))[0] == pytest.approx(0.25)


def test_claims_say_what_they_need():
    claims = ledger.claims("01")
    assert {claim.experiment for claim in claims} == {"lab01_sweep"}
    assert all(claim.needed and claim.what for claim in claims)


# The exercises


def test_cache_left(capsys):
    assert_judges(checks.cache_left, 0.8, [0.9, 1], capsys, 8e9, 0.75, 1e9)


def test_bytes_each(capsys):
    right = memory.decode_bytes_per_token(SHAPE, batch=8, context=576, include_lm_head=True) / 1e6
    whole = memory.decode_bytes_per_token(SHAPE, batch=16, context=576, include_lm_head=True) / 1e6
    assert_judges(checks.bytes_each, right, [whole, right * 1e6, right / 1.049], capsys, SHAPE,
                  in_flight=16, context=576)


def test_rates(capsys):
    load = {"in_flight": 16, "output_len": 32, "prompt_s": 0.05,
            "step_s": lambda batch: 0.01 + 0.001 * batch}
    apart = 16 * 32 / (8 * 0.05 + 32 * 0.018)
    checks.rates(..., ..., **load)
    assert capsys.readouterr().out.startswith("○")
    checks.rates(apart / 2, apart, **load)
    assert capsys.readouterr().out.count("✓") == 2
    for turns, apart_too in ((apart, apart), (apart / 2, apart / 2), (apart / 2, apart * 1.2)):
        with pytest.raises(check.WrongAnswer, match="round"):
            checks.rates(turns, apart_too, **load)


def test_progress(capsys):
    assert_judges(checks.progress, 1.0, [0.5, 0.6, 2], capsys, made(30))


@pytest.mark.parametrize(("two_rate", "word"), [(30, "supported"), (60, "contradicted")])
def test_verdict(two_rate, word, capsys):
    table = ledger.verdicts("01", {"lab01_sweep": made(two_rate)})
    wrong = [w for w in (*decision.MARKS, "proven") if w != word]
    assert_judges(checks.verdict, word, wrong, capsys, table)


# The figures

EXPECTED = pd.DataFrame({"concurrency": [4, 8], "one": [60.0, 100], "turns": [40.0, 60],
                         "apart": [80.0, 120]})


def found(runs, machine):
    return experiment.against(experiment.totals(runs), base=ONE).assign(machine=machine)


def test_each_figure_has_units_and_takes_axes():
    runs = made(30)
    assert_has_units_and_takes_axes(plots.between, experiment.totals(runs), EXPECTED,
                                    unit="tokens/s")
    assert_has_units_and_takes_axes(plots.over_one, found(runs, "this one"), unit="ratio")
    assert_has_units_and_takes_axes(
        lambda rows, ax=None: plots.beats(rows, start_s=0, seconds=1, ax=ax),
        runs[(runs.arm == TWO) & (runs.repeat == 0) & (runs.concurrency == 8)], unit="ms")


def test_between_has_a_dot_for_each_load_of_an_arm():
    ax = plots.between(experiment.totals(made(30)), EXPECTED)
    means = {bars.get_label(): bars[0].get_ydata() for bars in ax.containers}
    assert set(means) == {ONE, TWO, AGAIN}
    assert means[ONE] == pytest.approx([60, 100])
    assert ax.get_ylim()[0] == 0


def test_machines_stand_above_their_ratios():
    both = pd.concat([found(made(30), "mine"), found(made(60, repeats=1), "theirs")])
    ax = plots.over_one(both)
    assert [text.get_text() for text in ax.texts[-2:]] == ["mine", "theirs"]
    dots = [line for line in ax.lines if line.get_marker() == "o"]
    assert [dot.get_markerfacecolor() == "none" for dot in dots] == [False] * 4 + [True] * 4
    one_alone = plots.over_one(found(made(30), "mine"))
    assert "mine" not in [text.get_text() for text in one_alone.texts]


def test_beats_draws_what_lies_in_the_stretch():
    rows = pd.DataFrame({"engine": ["a", "b", "a"], "sent_s": [0.0, 0.1, 5.0],
                         "chunk_times_s": [[0.1, 0.3], [0.1, 9.0], [0.1]]})
    ax = plots.beats(rows, start_s=0.05, seconds=0.3)
    assert [list(line.get_xdata()) for line in ax.lines] == [
        pytest.approx([50, 250]), pytest.approx([150])]
