"""Lab 09: its scales, its rules of marking, its claims and its checks, on constructed data."""

import json

import numpy as np
import pandas as pd
import pytest
from safetensors.numpy import save_file

from helpers import docstrings, kv_scales, ledger, quality, tasks
from helpers.check import WrongAnswer
from helpers.check import lab09 as check
from helpers.errors import LabError
from helpers.ledger import lab09

ARMS = {"16 bits": 0, "16 bits again": 0, "FP8 uncalibrated": 0.03, "FP8 calibrated": 0.01,
        "4-bit": 0.3}


def tokens():
    dice = np.random.default_rng(1)
    base = dice.exponential(2, 2000)
    return pd.concat([pd.DataFrame({
        "arm": arm, "text": "a", "place": range(2000),
        "nll": base + shift + (0.01 * dice.normal(size=2000) if shift else 0)})
        for arm, shift in ARMS.items()], ignore_index=True)


def verdicts(tokens):
    return ledger.verdicts("09", {"lab09_nll": tokens, "lab09_longer": lab09.long_form(
        lab09.stretches(tokens[tokens.arm.str.startswith("FP8")]))})


def test_claims_on_constructed_losses():
    found = verdicts(tokens())
    assert list(found.verdict) == ["supported"] * 4
    assert lab09.table(tokens()).loc["16 bits again", "difference"] == 0
    assert len(lab09.table(tokens())) == 5


def test_too_few_tokens_decide_nothing():
    few = tokens().query("place < 100")
    assert set(verdicts(few).verdict) == {"not decided"}


def test_a_machine_without_fp8_decides_nothing():
    same = tokens().query("arm == '16 bits'")
    alike = pd.concat([same.assign(arm=arm) for arm in list(ARMS)[:4]], ignore_index=True)
    found = verdicts(alike)
    assert set(found.verdict) == {"not decided"} and len(lab09.table(alike)) == 4


def test_more_texts_for_two_arms_leave_the_third_out():
    more = tokens().query("arm.str.startswith('FP8')").assign(text="b")
    rows = lab09.long_form(lab09.stretches(pd.concat([tokens(), more]).query(
        "arm.str.startswith('FP8')")))
    found = lab09.longer(rows)
    assert found.pairs == 40 and found.mean == pytest.approx(
        lab09.difference(tokens(), "FP8 calibrated", "FP8 uncalibrated").mean)


def test_tasks_by_arm():
    rows = [{"arm": arm, "task": task, "example": str(n), "right": bool(n % 2) or arm != "16 bits"}
            for arm in ("16 bits", "FP8 calibrated")
            for task in ("instructions", "arithmetic", "science") for n in range(60)]
    found = ledger.verdicts("09", {"lab09_tasks": pd.DataFrame(rows)})
    assert list(found.verdict) == ["contradicted", "supported", "supported"]


@pytest.mark.parametrize(("answer", "rule", "right"), [
    ("It is 12.", ("number", 12), True), ("13", ("number", 12), False), ("", ("number", 1), False),
    ("A RIVER.", ("capitals", None), True), ("'salt'.", ("exactly", "salt"), True),
    ("salt, salt and salt", ("times", ("salt", 3)), True), ("a, b", ("without", ","), False),
    ("Bridge one", ("begins", "bridge"), True), ("the stone", ("contains", "stone"), True),
])
def test_rules(answer, rule, right):
    assert tasks.follows(answer, rule) is right


def test_questions_are_the_same_each_time():
    assert tasks.arithmetic(20) == tasks.arithmetic(20)
    assert len({each["prompt"] for each in tasks.instructions(60)}) == 60


def test_checks():
    check.scale(10 / 448, 10)
    check.lost(lab09.difference(tokens(), lab09.CALIBRATED).mean, tokens())
    found = lab09.difference(tokens(), lab09.CALIBRATED, lab09.PLAIN)
    check.needed(found.pairs * 4, found, found.detectable / 2)
    check.needed(2.3, quality.Difference(10, 0, 0, 0, 0.48), 1)  # rounded up it would be 3
    check.needed(..., found, 1)
    same = quality.Difference(10, 0, 0, 0, 0)  # a machine without FP8
    check.needed(0.0, same, 1)
    for wrong in (lambda: check.scale(1, 10), lambda: check.lost(5, tokens()),
                  lambda: check.lost(pd.Series([1.0, 2.0]), tokens()),
                  lambda: check.needed(0.9, quality.Difference(10, 0, 0, 0, 0.2), 1),
                  lambda: check.needed(1, found, found.detectable / 2)):
        with pytest.raises(WrongAnswer):
            wrong()


@pytest.fixture
def model(tmp_path, monkeypatch):
    monkeypatch.setenv("LAB_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"num_hidden_layers": 1}))
    save_file({"w": np.zeros(2, np.float32)}, folder / "model.safetensors")
    return folder


NAMES = ("model.layers.0.self_attn.k_scale", "model.layers.0.self_attn.v_scale")


def test_a_folder_of_links_and_scales(model):
    values = dict.fromkeys(NAMES, 0.25)
    made = kv_scales.folder(str(model), values)
    assert kv_scales.read(made) == values
    assert (made / "model.safetensors").is_symlink()
    index = json.loads((made / "model.safetensors.index.json").read_text())["weight_map"]
    assert set(index) == {"w", *NAMES} and made == kv_scales.folder(str(model), values)
    assert kv_scales.require("all well", made, layers=1) == values


@pytest.mark.parametrize("values", [{}, dict.fromkeys(NAMES, 1.0)])
def test_called_calibrated_but_is_not(model, values):
    made = kv_scales.folder(str(model), values)
    with pytest.raises(LabError, match="Called calibrated"):
        kv_scales.require("", made, layers=1)


def test_the_engine_ignored_the_scales(model):
    made = kv_scales.folder(str(model), dict.fromkeys(NAMES, 0.25))
    with pytest.raises(LabError, match="uses scales of 1"):
        kv_scales.require(f"WARNING {kv_scales.BETRAYAL} for fp8_e4m3.", made, layers=1)


def test_all_ones_and_the_engine_says_so(model):
    made = kv_scales.folder(str(model), dict.fromkeys(NAMES, 1.0))
    with pytest.raises(LabError, match=kv_scales.BETRAYAL):
        kv_scales.require(f"WARNING {kv_scales.BETRAYAL} for fp8_e4m3.", made, layers=1)


def test_no_question_is_about_a_text_of_the_calibration(monkeypatch):
    monkeypatch.syspath_prepend(str(kv_scales.DATA / "tasks"))
    import course

    asked = course.first_passages()["test"]
    assert len(asked) == 5 * 14 and not set(kv_scales.texts()) & set(asked["passage"])
    assert len(set(asked["name"][:6])) == 6  # a quick run takes from as many passages


def test_the_short_end_of_a_text_is_no_stretch():
    long = pd.concat([tokens(), pd.DataFrame({"arm": list(ARMS), "text": "a", "place": 2000,
                                              "nll": 99.0})])
    assert len(lab09.stretches(long)) == len(lab09.stretches(tokens())) == 20


def test_scales_without_effect():
    kv_scales.require_effect([1.0, 2.0], [1.0, 2.1])
    with pytest.raises(LabError, match="exactly as with scales of 1"):
        kv_scales.require_effect([1.0, 2.0], [1.0, 2.0])


def test_what_ships_is_of_every_layer():
    shipped = kv_scales.scales("smollm2-135m")
    assert len(shipped) == 60 and all(0 < value < 1 for value in shipped.values())


def test_docstrings_are_enough_and_the_same():
    found = docstrings.pieces(60)
    assert len(found) == 60 and {len(text) for text in found.values()} == {4000}
    assert found == docstrings.pieces(60)
