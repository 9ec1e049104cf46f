"""Runs on their way into data/recorded."""

import pandas as pd
import pytest

from helpers import metrics, results, run_file
from helpers.make import ship


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.setattr(results, "RUNS", tmp_path)
    monkeypatch.delenv("LAB_QUICK", raising=False)
    rows = pd.DataFrame({
        "arm": "one", "intended_s": float("nan"), "sent_s": [0.0, 1.0], "ttft_s": 0.1,
        "chunk_times_s": [[0.1, 0.2]] * 2,
        "itl_s": [[0.1]] * 2, "tpot_s": 0.1, "e2el_s": 0.2, "input_tokens": 5, "output_tokens": 2,
        "outcome": "ok", "text": ["hello", "there"]})
    return results.record("sample", rows, server=[])


def test_a_small_run_ships_as_it_was(run, tmp_path):
    header, rows = run_file.read(ship.ship(run, tmp_path / "to"), "yours")
    before, kept = run_file.read(run, "yours")
    assert header == before
    pd.testing.assert_frame_equal(rows, kept)


def test_a_large_run_ships_without_its_chunks(run, tmp_path, monkeypatch):
    monkeypatch.setattr(ship, "LIMIT", 10)
    header, rows = run_file.read(ship.ship(run, tmp_path / "to"), "yours")
    assert header["left_out"] == ["chunk_times_s", "itl_s", "text"]
    assert rows.text.tolist() == ["", ""] and rows.chunk_times_s.tolist() == [[], []]
    same = ["ok", "duration_s", "output_tok_per_s", "p50_ttft_s", "p50_tpot_s", "p95_e2el_s"]
    kept = run_file.read(run, "yours")[1]
    pd.testing.assert_frame_equal(metrics.points(rows)[same], metrics.points(kept)[same])


def test_a_large_run_of_tokens_keeps_the_name_of_its_text(run, tmp_path, monkeypatch):
    monkeypatch.setattr(ship, "LIMIT", 10)
    tokens = pd.DataFrame({"text": "01_harbour", "place": [1, 2], "token": [" a", " b"],
                           "nll": [0.5, 1.5]})
    header, rows = run_file.read(ship.ship(results.record("tokens", tokens, server=[]),
                                           tmp_path / "to"), "yours")
    assert header["left_out"] == ["token"] and rows.token.tolist() == ["", ""]
    assert rows.text.tolist() == ["01_harbour"] * 2 and rows.nll.tolist() == [0.5, 1.5]
