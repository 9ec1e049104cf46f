"""The matrix products of a step, timed without an engine."""

import pytest

from helpers import bare_step, profile
from helpers.errors import LabError

CONFIG = {"model_type": "llama", "num_hidden_layers": 2, "hidden_size": 64,
          "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 128,
          "vocab_size": 256, "tie_word_embeddings": True}


def test_it_times_every_batch_in_a_process_of_its_own(monkeypatch):
    monkeypatch.setenv("LAB_PROFILE", "cpu")
    profile.current.cache_clear()
    found = bare_step.matrices_s(CONFIG, batches=(1, 8))
    profile.current.cache_clear()
    assert list(found) == [1, 8] and all(0 < seconds < 1 for seconds in found.values())


def test_more_weights_take_longer():
    work = {"hidden": 256, "vocab": 256, "batches": [1], "device": "cpu", "weights": 2**20}
    one, many = (bare_step.measure(layers=layers, **work)[1] for layers in (1, 24))
    assert many > 2 * one


def test_a_model_whose_weights_are_not_counted_is_refused():
    with pytest.raises(LabError):
        bare_step.matrices_s(CONFIG | {"model_type": "gpt2"}, batches=(1,))


def test_a_process_that_fails_says_why():
    with pytest.raises(LabError, match="could not be timed(.|\n)*negative dimension"):
        bare_step.matrices_s(CONFIG | {"vocab_size": -1}, batches=(1,))
