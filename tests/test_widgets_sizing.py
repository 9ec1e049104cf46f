"""Sizing: what stops fitting is named, by hand-made numbers; the figure and its handles."""

import matplotlib

matplotlib.use("agg")

import matplotlib.pyplot as plt
import pandas as pd
import pytest

from helpers import memory, models, plots, sizing, widgets
from helpers.errors import LabError
from helpers.widgets import base

GIB = 2**30
# The tutorial's worked example is this shape: 128 KiB a token, 512 MiB at 4,096 tokens.
LLAMA = models.config("shape:Llama-3.1-8B")
LAPTOP = dict(card_bytes=8 * GIB, weight_bits=4, cache_bits=16, tokens=4096, users=30,
              rest_bytes=1.5 * GIB)


@pytest.fixture(autouse=True)
def no_figures_left():
    yield
    plt.close("all")
    plots.label("")


def need(**values):
    return sizing.need(LLAMA, **LAPTOP | values)


def test_the_class_on_the_laptop_by_hand():
    got = need()
    assert got.weights == 8_030_261_248 / 2 and got.user == 512 * 2**20
    assert got.cache == 15 * GIB
    assert got.fitting == (8 * GIB - 1.5 * GIB - 8_030_261_248 / 2) // (GIB / 2) == 5


@pytest.mark.parametrize(("values", "named"), [
    ({}, "cache for 30 users at 4,096 tokens does not fit: 12.2 GiB over\n5 of 30 users fit"),
    ({"weight_bits": 16}, "weights do not fit: 7.0 GiB over"),
    ({"weight_bits": 8}, "the rest beside the weights does not fit: 1.0 GiB over"),
    ({"cache_bits": 8}, "cache for 30 users at 4,096 tokens does not fit: 4.7 GiB over\n"
                        "11 of 30 users fit"),
    ({"users": 5}, "cache for 5 users at 4,096 tokens fits: 0.3 GiB left\n5 users would fit"),
    ({"tokens": 512}, "cache for 30 users at 512 tokens fits: 0.9 GiB left\n44 users would fit"),
])
def test_the_number_that_stops_fitting_is_named(values, named):
    assert need(**values).verdict == named


def test_as_many_as_fit_do_fit_and_one_more_does_not():
    for tokens in (512, 4096, 5000):
        most = need(tokens=tokens).fitting
        assert need(tokens=tokens, users=most).over <= 0 < need(tokens=tokens, users=most + 1).over


def test_windows_stop_growing():
    config = models.config("shape:Mistral-7B-v0.1")
    short, long = (sizing.need(config, **LAPTOP | {"tokens": n}) for n in (4096, 65536))
    assert short.user == long.user == memory.kv_bytes(config, tokens=4096)


@pytest.mark.parametrize("values", [{"users": 0}, {"tokens": 0}, {"card_bytes": 0},
                                    {"rest_bytes": -1}])
def test_numbers_that_are_no_deployment(values):
    with pytest.raises(LabError):
        need(**values)


@pytest.mark.parametrize(("name", "kind"), [
    ("gpt2", "MHA"), ("opt-13b", "MHA"), ("Llama-3.1-8B", "GQA"), ("falcon-7b", "MQA"),
    ("DeepSeek-V3", "MLA"), ("gemma-2-9b", "GQA + windows"), ("gemma-3-1b-it", "MQA + windows"),
    ("gpt-oss-20b", "GQA + windows"), ("whisper-small", "MHA + encoder"),
])
def test_kinds_of_attention(name, kind):
    assert sizing.attention(models.config(f"shape:{name}")) == kind


@pytest.mark.parametrize(("name", "count"), [
    ("gemma-2-9b", 9_241_705_984), ("gemma-3-1b-it", 999_885_952)])
def test_weights_of_models_that_do_not_say_that_embeddings_are_tied(name, count):
    assert memory.parameters(models.config(f"shape:{name}")) == count


def test_models_whose_weights_cannot_be_counted_are_left_out():
    configs = {"mine": LLAMA, "experts": models.config("shape:DeepSeek-V3")}
    assert sizing.countable(configs) == ["mine"]


def test_the_figure_names_it_and_its_bar_is_as_long_as_the_need():
    got = need()
    plots.label("a machine that measured something else")
    ax = plots.sizing(got)
    assert [text.get_text() for text in ax.texts] == ["worked out, not measured"]
    assert ax.get_title(loc="left") == got.verdict
    assert max(bar.get_x() + bar.get_width() for bar in ax.patches) == pytest.approx(
        (got.weights + got.rest + got.cache) / GIB)
    assert "GiB" in ax.get_xlabel()


def test_growing_caches_bend_at_their_window():
    tokens = [1024, 4096, 8192]
    sizes = {name: [memory.kv_bytes(models.config(f"shape:{name}"), tokens=n) for n in tokens]
             for name in ("Llama-3.1-8B", "Mistral-7B-v0.1")}
    kinds = {"Llama-3.1-8B": "GQA", "Mistral-7B-v0.1": "GQA + windows"}
    ax = plots.cache_growth(pd.DataFrame(sizes, index=tokens), kinds)
    drawn = {line.get_linestyle(): list(line.get_ydata()) for line in ax.lines}
    assert drawn["-"] == pytest.approx([0.125, 0.5, 1])
    assert drawn["--"] == pytest.approx([0.125, 0.5, 0.5])
    assert "tokens" in ax.get_xlabel() and "GiB" in ax.get_ylabel()


def test_time_against_context_is_drawn_with_its_lines():
    rows = pd.DataFrame({"arm": ["a", "a", "b"], "context": [100, 200, 100],
                         "gap_s": [0.01, 0.02, 0.01]})
    ax = plots.by_context(rows, {"a": (1e-4, 0.0, 1e-5), "b": (0.0, 0.01), "guess": (0.0, 0.02)})
    assert list(ax.lines[1].get_ydata()) == pytest.approx([10, 20])
    assert ax.lines[-1].get_linestyle() == "--"
    assert list(ax.lines[-1].get_ydata()) == pytest.approx([20, 20])
    assert "tokens" in ax.get_xlabel() and "ms" in ax.get_ylabel()


def test_the_widget_shows_a_picture_and_follows_its_handles(monkeypatch):
    shown = []
    monkeypatch.setattr(base, "display", lambda bundle, raw: shown.append(bundle))
    box = widgets.sizing()
    assert "application/vnd.jupyter.widget-view+json" in shown[0]
    assert shown[0]["image/png"].startswith(b"\x89PNG")
    row, note, image = box.children
    handles = {handle.description: handle for handle in row.children}
    assert set(handles) == {"model", "card", "weight bits", "cache bits", "tokens", "users",
                            "rest (GiB)"}
    before = image.value
    for name, value in (("model", "gemma-2-9b"), ("card", "H100 SXM 80 GB"), ("weight bits", 16),
                        ("cache bits", 8), ("tokens", 512), ("users", 3), ("rest (GiB)", 4)):
        handles[name].value = value
        assert image.value != before and not note.value
        before = image.value
