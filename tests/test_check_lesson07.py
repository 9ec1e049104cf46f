"""The checks of lesson 07: right, wrong, and unanswered."""

from types import SimpleNamespace

import pandas as pd
import pytest
from checks import assert_judges
from conftest import write_model

from helpers.check import lesson07

CONFIG = {"model_type": "llama", "num_hidden_layers": 1, "hidden_size": 64,
          "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 128,
          "vocab_size": 256, "tie_word_embeddings": True}
LAYER = 64 * 16 * (2 * 4 + 2 * 2) + 3 * 64 * 128  # matrices
KEPT = 2 * (2 * 64 + 256 * 64)  # norms and projection at 16 bits
POINTS = pd.DataFrame({"repeat": [0, 0, 1, 1], "arm": ["BF16", "INT8"] * 2,
                       "output_tok_per_s": [100, 120, 110, 125]})


@pytest.fixture
def cases(tmp_path):
    """name: (check, right answer, wrong answer, further arguments)."""
    return {
        "on_disk": (lesson07.on_disk, 8, 8.05, [write_model(tmp_path / "m")]),
        "pool_tokens": (lesson07.pool_tokens, 9632, 9600, [SimpleNamespace(kv_cache_tokens=9632)]),
        "bound": (lesson07.bound, (2 * LAYER + KEPT) / (LAYER + KEPT), 2, [CONFIG]),
        "ratio": (lesson07.ratio, 245 / 210, 210 / 245, [POINTS]),
    }


@pytest.mark.parametrize("name", ["on_disk", "pool_tokens", "bound", "ratio"])
def test_checks(name, cases, capsys):
    function, right, wrong, arguments = cases[name]
    assert_judges(function, right, [wrong, "a word"], capsys, *arguments)
