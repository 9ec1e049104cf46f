"""`make bench`: what its table says, and that no failure is hidden. It asserts no bar."""

import json

import pytest

from helpers.make import bench, bench_sections
from helpers.make.bench import Figure


def test_the_table_shows_figure_bar_peer_and_verdict():
    text = bench.table([
        Figure("start", "s", 31.04, peers={"vllm serve": 30.0, "left": "5 processes"}),
        Figure("stop", "s", 0.512, bar=10), Figure("slow", "ms", 1234.4, bar=0.25),
        Figure("broken", "", None, note="RuntimeError: no engine")])
    lines = text.splitlines()
    assert lines[0].split() == ["figure", "bar", "measured", "peer", "met?"]
    assert lines[2].split("  ")[0] == "start" and "31 s" in lines[2]
    assert lines[2].endswith("vllm serve 30, left 5 processes")
    assert lines[3].split() == ["stop", "10", "s", "0.512", "s", "yes"]
    assert lines[4].split() == ["slow", "0.25", "ms", "1234", "ms", "no"]
    assert lines[5].split() == ["broken", "failed"]
    assert lines[6] == "broken failed: RuntimeError: no engine"


@pytest.mark.parametrize("measured, bar, met", [
    (1, 1, "yes"), (0, 0, "yes"), (1.01, 1, "no"), (5, None, ""), (None, 1, "failed"),
    (float("nan"), 1, "no")])
def test_verdicts(measured, bar, met):
    assert Figure("x", "s", measured, bar=bar).met == met


def test_a_bar_can_be_the_least():
    text = bench.table([Figure("faster", "", 1.3, bar=1.2, at_least=True, note="of 6 rounds"),
                        Figure("slower", "", 1.1, bar=1.2, at_least=True)])
    assert [line.split()[-1] for line in text.splitlines()[2:4]] == ["yes", "no"]
    assert "at least 1.2" in text and text.endswith("faster: of 6 rounds")


def test_a_section_that_fails_is_told_and_the_others_still_count(monkeypatch, tmp_path, capsys):
    def broken():
        raise RuntimeError("no engine")

    monkeypatch.setattr(bench, "RESULTS", tmp_path)
    monkeypatch.setattr(bench_sections, "SECTIONS",
                        {"broken": broken, "fine": lambda: [Figure("speed", "s", 1.0, bar=2)]})
    assert bench.main([]) == 1
    printed = capsys.readouterr().out
    assert "broken failed: RuntimeError: no engine" in printed and "speed" in printed
    saved = json.loads((tmp_path / "bench.json").read_text())
    assert [(f["section"], f["met"]) for f in saved["figures"]] == [
        ("broken", "failed"), ("fine", "yes")]
    assert saved["machine"]["cores"] and saved["software"]["python"]
    assert bench.main(["fine"]) == 0


def test_an_unknown_section_is_said(capsys):
    assert bench.main(["speed"]) == 2
    assert "There is no section 'speed'. There are: setup, engine" in capsys.readouterr().out


def test_a_bar_that_is_not_met_is_no_failure(monkeypatch, tmp_path):
    monkeypatch.setattr(bench, "RESULTS", tmp_path)
    monkeypatch.setattr(bench_sections, "SECTIONS", {"a": lambda: [Figure("x", "s", 3, bar=2)]})
    assert bench.main([]) == 0
