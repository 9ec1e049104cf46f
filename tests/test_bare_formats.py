"""The products of a step in several formats, timed without an engine."""

import math

import pytest

from helpers import bare_formats, profile
from helpers.errors import LabError

CONFIG = {"model_type": "llama", "num_hidden_layers": 3, "hidden_size": 64,
          "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 128,
          "vocab_size": 256, "tie_word_embeddings": True}


def test_each_format_in_a_process_of_its_own(monkeypatch):
    monkeypatch.setenv("LAB_PROFILE", "cpu")
    profile.current.cache_clear()
    found = bare_formats.products_s(CONFIG, batch=2)
    profile.current.cache_clear()
    assert list(found) == ["BF16", "INT8", "FP8", "FP8 to BF16"]
    assert 0 < found["BF16"] < 1


def test_a_product_that_there_is_not_is_nan():
    def missing():
        raise RuntimeError("not implemented")

    assert math.isnan(bare_formats._best(missing))


def test_a_model_whose_matrices_are_not_known_is_refused():
    with pytest.raises(LabError):
        bare_formats.products_s(CONFIG | {"model_type": "gpt2"}, batch=1)
