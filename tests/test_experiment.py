"""The labs' protocol, on servers with known latencies and on the stand-in."""

import math
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest

from helpers import client, experiment, journal, load, models, profile, reference, results, server
from helpers.errors import LabError
from helpers.make.leftovers import Watch

LAB = SimpleNamespace(input_len=4, output_len=5, shared_rounds=4)


@pytest.fixture(scope="module")
def pair():
    """Two servers with known latencies, which pass for engines."""
    with reference.serve(first_s=0.01, gap_s=0.002, tokens_per_chunk=1) as a, \
            reference.serve(first_s=0.01, gap_s=0.002, tokens_per_chunk=1) as b:
        yield [SimpleNamespace(url=s.url, model=s.model, tokenizer=s.tokenizer, pid=os.getpid(),
                               settings=("m", None, {}, {}), command="", name=str(s.url),
                               metrics=lambda: {experiment.PREEMPTIONS: 2.0}, stop=lambda: None)
               for s in (a, b)]


@pytest.fixture
def fleet(pair, monkeypatch, tmp_path):
    monkeypatch.setattr(journal, "PARTIAL", tmp_path / "partial")
    monkeypatch.setattr(experiment, "PAUSE_S", 0)
    recorded = []
    monkeypatch.setattr(results, "record",
                        lambda name, rows, **about: recorded.append((name, rows)))
    monkeypatch.setenv("LAB_PROFILE", "cpu")
    profile.current.cache_clear()
    found = experiment.Fleet()
    found["one"] = {"a": pair[0]}
    found["one again"] = found["one"]
    found["two"] = dict(zip("ab", pair, strict=True))
    found.recorded = recorded
    yield found
    profile.current.cache_clear()


def measure(servers, point, seed):
    return experiment.closed_loop(LAB)(servers, point, seed)


def test_together_shares_the_load_out_on_one_clock(pair):
    servers = dict(zip("ab", pair, strict=True))
    found = load.together(servers, input_len=4, output_len=5, concurrency=3, num_prompts=7, seed=1)
    assert dict(found.engine.value_counts()) == {"a": 4, "b": 3}
    assert (found.outcome == "ok").all() and (found.output_tokens == 5).all()
    first = found.groupby("engine").sent_s.min()
    assert first.max() < 0.2 and found.attrs["wall_s"] >= (found.sent_s + found.e2el_s).max()
    assert 0 < found.attrs["client_cpu_s"] <= found.attrs["wall_s"]
    in_flight = [((found.sent_s <= at) & (found.sent_s + found.e2el_s > at)).sum()
                 for at in found.sent_s]
    assert max(in_flight) == 3


def test_together_takes_requests_as_they_are_and_limits_for_each(pair):
    servers = dict(zip("ab", pair, strict=True))
    whole = client._request(pair[1], "ready", {"max_tokens": 2})
    found = client.together(servers, {"a": ["x", "y"], "b": [whole]},
                            max_tokens={"a": [3, 4], "b": 9}, concurrency={"a": 1, "b": 1})
    assert list(found.output_tokens) == [3, 4, 2]


def test_together_refuses_a_share_of_nothing(pair):
    servers = dict(zip("ab", pair, strict=True))
    with pytest.raises(ValueError, match="leave nothing"):
        load.together(servers, input_len=1, output_len=1, concurrency=1, num_prompts=4, seed=0)


def test_the_same_seed_sends_the_same_prompts(pair, monkeypatch):
    sent = []
    monkeypatch.setattr(client, "together", lambda servers, prompts, **_: sent.append(prompts))
    for seed in ([0, 1], [0, 1], [1, 1]):
        load.together({"a": pair[0]}, input_len=8, output_len=1, concurrency=2, num_prompts=2,
                      seed=seed)
    assert sent[0] == sent[1] != sent[2]


def test_the_order_is_balanced():
    assert [arm for _, arm in experiment.order("AB", 4)] == list("ABBAABBA")


def test_every_request_is_kept_with_its_turn(fleet):
    runs = experiment.run("t", fleet, measure, points=(2, 4), repeats=3)
    assert len(runs) == 3 * 3 * 4 * (2 + 4) and (runs.outcome == "ok").all()
    turns = runs.groupby(["repeat", "concurrency"], sort=False).arm.unique().map(list)
    assert turns[0, 2] == ["one", "one again", "two"] == turns[1, 2][::-1]
    assert (runs.preemptions == 0).all()  # of the turn, not the counter's 2
    assert runs.gpu_busy.isna().all() and runs.client_ok.all()
    [(name, rows)] = fleet.recorded
    assert name == "t" and len(rows) == len(runs) and not list(journal.PARTIAL.glob("*"))


def test_totals_and_ratios(fleet):
    totals = experiment.totals(experiment.run("t", fleet, measure, points=(4,), repeats=3))
    assert len(totals) == 9 and (totals.ok == 16).all()
    found = experiment.against(totals, base="one").set_index("arm")
    assert set(found.index) == {"one again", "two"}
    assert found.loc["two"].low <= found.loc["two"].ratio <= found.loc["two"].high
    assert found.smallest.iloc[0] > 0


def test_an_effect_smaller_than_the_arms_own_spread_is_not_seen():
    def points(again, two):
        rows = [{"arm": arm, "concurrency": 8, "repeat": repeat, "output_tok_per_s": value}
                for arm, values in {"one": [100, 100, 100], "one again": again, "two": two}.items()
                for repeat, value in enumerate(values)]
        return experiment.against(pd.DataFrame(rows), base="one").set_index("arm").loc["two"]
    assert points([101, 99, 100], [110, 111, 109]).seen
    assert not points([115, 100, 100], [110, 111, 109]).seen  # A differs from A by more
    assert not points([100, 100, 100], [80, 130, 120]).seen  # the interval holds 1
    assert points([115, 100, 100], [110, 111, 109]).smallest == pytest.approx(0.15)


def test_no_interval_is_nothing_seen():
    rows = [{"arm": arm, "concurrency": 8, "repeat": 0, "output_tok_per_s": value}
            for arm, value in {"one": 100, "two": 200}.items()]
    [found] = experiment.against(pd.DataFrame(rows), base="one").itertuples()
    assert found.ratio == 2 and math.isnan(found.low) and math.isnan(found.smallest)
    assert not found.seen


def test_an_interrupted_run_goes_on_with_the_next_turn(fleet, capsys):
    calls = []

    def interrupted(servers, point, seed):
        calls.append(seed)
        if len(calls) == 5:  # two warm-ups, two turns
            os.kill(os.getpid(), signal.SIGINT)
        return measure(servers, point, seed)

    with pytest.raises(KeyboardInterrupt):
        experiment.run("t", fleet, interrupted, points=(2,), repeats=2)
    assert not fleet.recorded
    runs = experiment.run("t", fleet, interrupted, points=(2,), repeats=2)
    assert "Going on after turn 2" in capsys.readouterr().out
    assert len(calls) == 5 + 2 + 4 and len(runs) == 6 * 8  # the warm-up, and the four turns left
    assert set(zip(runs.arm, runs.repeat, strict=True)) == {
        (arm, repeat) for arm in fleet for repeat in (0, 1)}


def test_other_settings_begin_anew(fleet):
    def fails(servers, point, seed):
        if seed[0] == 1:
            raise KeyboardInterrupt
        return measure(servers, point, seed)
    with pytest.raises(KeyboardInterrupt):
        experiment.run("t", fleet, fails, points=(2,), repeats=2)
    assert len(experiment.run("t", fleet, measure, points=(2,), repeats=1)) == 3 * 8


def test_a_crashed_arm_is_recorded_as_crashed_and_the_others_go_on(fleet, capsys):
    def crashes(servers, point, seed):
        if len(servers) == 2 and seed[0] == 1:
            raise LabError("The engine died.")
        return measure(servers, point, seed)
    runs = experiment.run("t", fleet, crashes, points=(2,), repeats=3)
    assert "Crashed, and left out: two" in capsys.readouterr().out and "two" not in fleet
    [row] = runs[runs.outcome == "error"].itertuples()
    assert row.arm == "two" and row.error == "crashed: The engine died." and row.repeat == 1
    totals = experiment.totals(runs)
    assert dict(totals.arm.value_counts()) == {"one": 3, "one again": 3, "two": 1}


def test_what_needs_a_crashed_arm_says_which_and_why(fleet):
    def crashes(servers, point, seed):
        if len(servers) == 2:
            raise LabError("The engine died.", cause="No memory is left.")
        return measure(servers, point, seed)
    experiment.run("t", fleet, crashes, points=(2,), repeats=1)
    fleet.need("one", "one again")
    for ask in (lambda: fleet["two"], lambda: fleet.need("one", "two"), fleet.need):
        with pytest.raises(LabError, match="'two' crashed") as said:
            ask()
        assert said.value.cause == "The engine died. No memory is left."
    fleet.drop("one", "It was stopped.")  # because of the other: not the first to name
    with pytest.raises(LabError, match="'two' crashed"):
        fleet.need("one", "two")
    with pytest.raises(LabError, match="no arm 'three'"):
        fleet["three"]
    assert "two" not in fleet and fleet.get("two") is None


def test_a_busy_client_is_marked(fleet, monkeypatch, capsys):
    monkeypatch.setattr(experiment, "CLIENT_LIMIT", 0)
    runs = experiment.run("t", fleet, measure, points=(2,), repeats=1)
    assert not runs.client_ok.any()
    assert "Marked (client_ok False): 3 turns" in capsys.readouterr().out


def test_engines_start_together_and_a_crash_leaves_the_other_arm(standin, capsys):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(profile, "current", lambda: SimpleNamespace(
            name="cpu", engine_flags={"served_model_name": None}, engine_env={}))
        patch.setattr(models, "engine_flags", lambda path: {"served_model_name": "tiny"})
        fleet = experiment.start(
            {"one": {"a": {"kv_cache_memory_bytes": "1G"}}, "one again": "one",
             "bad": {"a": {"standin": {"crash": "unknown_flag.log"}}, "b": {"env": {"X": "1"}}}},
            standin)
        assert set(fleet) == {"one", "one again"} and list(fleet.crashed) == ["bad"]
        engine = fleet["one"]["a"]
        assert fleet["one again"] is fleet["one"] and engine.state == "ready"
        assert engine.settings[3]["enable_prefix_caching"] is False
        assert [name for name in server._live if name.startswith("bad")] == []
        experiment.stop(fleet)
        experiment.stop(fleet)
        assert engine.state == "stopped"
        with pytest.raises(LabError, match="No arm could be started"):
            experiment.start({"bad": {"a": {"standin": {"crash": "unknown_flag.log"}}}}, standin)


def pool(tokens, **flags):
    return SimpleNamespace(kv_cache_tokens=tokens, settings=("m", None, {}, flags))


def test_pools_are_equal_in_bytes_not_in_tokens():
    config = models.config("shape:Qwen3-0.6B")
    fleet = {"one": {"a": pool(1000)}, "two": {"a": pool(500), "b": pool(496)},
             "FP8": {"a": pool(2000, kv_cache_dtype="fp8")}}
    table = experiment.pools(fleet, config)
    assert list(table.tokens) == [1000, 500, 496, 2000]
    assert table.bytes[0] == 1000 * 114_688 == table.bytes[3]  # 2 * 28 layers * 8 heads * 128 * 2
    with pytest.raises(LabError, match="not equal"):
        experiment.pools({"one": {"a": pool(1000)}, "two": {"a": pool(980)}}, config)


def test_normalized_progress():
    from helpers.metrics import normalized_progress

    value, low, high = normalized_progress({"text": [60, 60, 60], "speech": [3, 3, 3]},
                                           {"text": [100, 100, 100], "speech": [5, 5, 5]})
    assert value == pytest.approx(1.2) and low == pytest.approx(1.2) == pytest.approx(high)
    value, low, high = normalized_progress({"a": [50, 60, 70]}, {"a": [100, 100, 100]})
    assert value == pytest.approx(0.6)
    half = 4.3027 * 0.1 / 3**.5  # Student's t at 2 degrees of freedom
    assert (low, high) == pytest.approx((0.6 - half, 0.6 + half), 1e-4)
    value, low, high = normalized_progress({"a": 1.0}, pd.DataFrame({"a": [2.0]}))
    assert value == 0.5 and math.isnan(low) and math.isnan(high)
    for shared, solo in [({"a": [1]}, {"b": [1]}), ({}, {}), ({"a": [1]}, {"a": [0]}),
                         ({"a": [1, 2]}, {"a": [1]})]:
        with pytest.raises(ValueError):
            normalized_progress(shared, solo)


def test_a_point_may_be_a_name(fleet, capsys):
    del fleet["two"]
    runs = experiment.run("named", fleet, lambda servers, point, seed: measure(servers, 2, seed),
                          points=["quiet", "loud"], repeats=1)
    assert set(runs.concurrency) == {"quiet", "loud"}
    assert "loud in flight" not in capsys.readouterr().out


LAB_SCRIPT = """
import sys, time
from pathlib import Path
from helpers import experiment, journal, results, rows
journal.PARTIAL, experiment.PAUSE_S = Path(sys.argv[2]), 0
results.record = lambda *_, **__: None
fleet = experiment.start({"one": {"a": {}}, "two": {"a": {}, "b": {}}}, sys.argv[1])
turns = []
def measure(servers, point, seed):
    if len(turns) == 4:  # two warm-ups and two turns are done
        print("in the middle", flush=True)
        time.sleep(60)
    turns.append(seed)
    answer = rows.latencies([0.1, 0.2], 2) | {"outcome": "ok", "error": "", "sent_s": 0.0,
                                              "input_tokens": 1, "output_tokens": 2}
    found = rows.table([answer | {"engine": name} for name in servers], tool="t", settings={})
    found.attrs.update(wall_s=0.2, client_cpu_s=0.01)
    return found
experiment.run("t", fleet, measure, points=(2,), repeats=2)
"""


@pytest.mark.parametrize("kind", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_lab_that_is_ended_in_the_middle_leaves_its_turns_and_no_process(kind, standin, tmp_path):
    watch = Watch()
    lab = subprocess.Popen([sys.executable, "-c", LAB_SCRIPT, str(standin), str(tmp_path / "left")],
                           cwd=Path(__file__).parents[1], env=watch.env, text=True,
                           stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    try:
        assert any(line == "in the middle\n" for line in lab.stdout)
        assert "VLLM::Worker" in watch.look().values()
        lab.send_signal(kind)
        lab.wait(20)
        assert watch.wait_gone() == {}
        assert len(list(tmp_path.glob("left/t-*/*.pkl"))) == 2
    finally:
        lab.kill()
        watch.end()
