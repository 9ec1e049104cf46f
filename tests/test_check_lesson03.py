"""Lesson 03's checks: unanswered prints a circle, wrong raises one hint, right prints a tick."""

from types import SimpleNamespace

import pytest

from helpers import check, models
from helpers.check import lesson03

ENGINE = SimpleNamespace(kv_cache_tokens=46_592)
CONFIG = models.config("shape:Qwen3-0.6B")  # 114,688 bytes a token
LAPTOP = dict(config=models.config("shape:Llama-3.1-8B"), card_bytes=8 * 2**30, weight_bits=4,
              cache_bits=16, tokens=4096, users=30, rest_bytes=1.5 * 2**30)
CARD = LAPTOP | {"card_bytes": 24 * 2**30}
# name: (check, right answers, [wrong answers, each with words of its hint], further arguments)
CASES = {
    "example": (lesson03.example, (128, 512, 10), [
        ((131_072, 512, 10), "KiB"), ((128, 524_288, 10), "MiB"), ((128, 512, 10_240), "GiB"),
        (("a", 512, 10), "number")], []),
    "cache_tokens": (lesson03.cache_tokens, (46_592,), [
        ((46_603,), "bytes of a block"), (("many",), "num_key_value_heads")], [ENGINE]),
    "fp8_tokens": (lesson03.fp8_tokens, (46_592,), [
        ((23_296,), "how many bytes"), (("many",), "how many bytes")], [ENGINE]),
    "slope": (lesson03.slope, (114_688 / 30e9,), [
        ((30e9 / 114_688,), "over"), (("fast",), "number")], [CONFIG, 30e9]),
    "pupils": (lesson03.pupils, ([22, 5, 37],), [
        (([23, 5, 37],), "your engine"), (([22, 6, 37],), "laptop"),
        (([22, 5, 36],), "data centre"), (([22, 5],), "list of 3"), ((22,), "list of 3")],
        [46_592, 2048, LAPTOP, CARD]),
}


@pytest.mark.parametrize("name", CASES)
def test_checks(name, capsys):
    function, right, wrong, arguments = CASES[name]
    function(*[...] * len(right), *arguments)
    assert capsys.readouterr().out.startswith("○")
    function(*right, *arguments)
    out = capsys.readouterr().out
    assert out.startswith("✓") and "○" not in out
    for answers, words in wrong:
        with pytest.raises(check.WrongAnswer, match=words):
            function(*answers, *arguments)


def test_a_part_that_is_not_answered(capsys):
    lesson03.example(128, ..., 10)
    lesson03.pupils([22, ..., 37], 46_592, 2048, LAPTOP, CARD)
    out = capsys.readouterr().out
    assert out.count("○") == 2 and "✓" not in out


def test_a_class_that_fits_whole_may_be_counted_as_the_class(capsys):
    lesson03.pupils([22, 5, 30], 46_592, 2048, LAPTOP, CARD)
    assert "the class has 30" in capsys.readouterr().out


def test_every_check_is_tested():
    public = {name for name, value in vars(lesson03).items() if callable(value)
              and value.__module__ == lesson03.__name__ and not name.startswith("_")}
    assert public == set(CASES)
