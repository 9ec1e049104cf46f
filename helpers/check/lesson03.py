"""Checks of notebooks/03_memory.ipynb: the tutorial's arithmetic, and the reader's own engine."""

from helpers import check, memory, sizing, study

WHOLE_BLOCKS = "only whole blocks count: floor(cache bytes / bytes of a block) * tokens in a block"


def example(kib_per_token, mib_per_request, gib_for_all):
    """The tutorial's worked example: one token, one request, all requests."""
    if check.unanswered(kib_per_token, mib_per_request, gib_for_all):
        return
    parts = [(kib_per_token, "tutorial_kv_bytes_per_token", "KiB a token",
              "multiply the five numbers; a KiB is 2**10 bytes"),
             (mib_per_request, "tutorial_kv_request", "MiB a request",
              "the bytes of a token, times the tokens of a request; a MiB is 2**20 bytes"),
             (gib_for_all, "tutorial_kv_total", "GiB for all",
              "the bytes of a request, times the requests; a GiB is 2**30 bytes")]
    for answer, key, unit, hint in parts:
        check.number(answer, study.value(key), unit=unit, hint=hint, within=0.001)


def cache_tokens(predicted, engine):
    """Against the engine's own line, to the token."""
    _tokens(predicted, engine, hint=WHOLE_BLOCKS)


def fp8_tokens(predicted, engine):
    _tokens(predicted, engine, hint=f"one byte an element in place of two; {WHOLE_BLOCKS}")


def _tokens(predicted, engine, *, hint):
    if check.unanswered(predicted):
        return
    told = engine.kv_cache_tokens
    check.choice(predicted, told, why=f"the engine says {told:,} tokens as well", hint=hint)


def slope(s_per_token, config, bandwidth):
    """Seconds that one more token of context adds to a step that only has to read its cache."""
    expected = memory.kv_bytes_per_token(config) / bandwidth
    check.number(s_per_token, expected, unit="s", within=0.01,
                 hint="bytes of cache a token, over the bytes a second that memory reads")


def pupils(answers, engine, tokens, *deployments):
    """Users that fit at once: on the reader's engine, then in each of sizing.need's arguments."""
    if check.unanswered(answers) or check.unanswered(*answers):
        return
    hints = ["your engine: tokens in its cache over tokens of a pupil, rounded down"] + [
        f"{what}: what the card has left after weights and rest, over the cache of one pupil, "
        "rounded down" for what in ("the laptop", "the data centre's card")]
    expected = [engine.kv_cache_tokens // tokens,
                *(sizing.need(**deployment).fitting for deployment in deployments)]
    for answer, right, hint in zip(answers, expected, hints, strict=True):
        if answer != right:
            raise check.WrongAnswer(hint)
    check.right(f"{', '.join(map(str, expected))} pupils at once")
