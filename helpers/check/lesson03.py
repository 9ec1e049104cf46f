"""Checks of notebooks/03_memory.ipynb: the tutorial's arithmetic, and the reader's own engine."""

from helpers import check, memory, sizing, study

WHOLE_BLOCKS = ("floor(cache bytes / bytes of a block) * tokens in a block, where a block has keys "
                "and values of num_key_value_heads heads in each layer")


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
    _tokens(predicted, engine, hint=f"how many bytes has an element now? {WHOLE_BLOCKS}")


def _tokens(predicted, engine, *, hint):
    if check.unanswered(predicted):
        return
    told = engine.kv_cache_tokens
    check.choice(predicted, told, why=f"the engine says {told:,} tokens as well", hint=hint)


def slope(s_per_token, config, bandwidth):
    """Seconds that one more token of context adds to a step that only has to read its cache."""
    expected = memory.kv_bytes_per_token(config) / bandwidth
    check.number(s_per_token, expected, unit="s", within=0.05,
                 hint="bytes of cache a token, over the bytes a second that memory reads")


def pupils(answers, cache_tokens, tokens, *deployments):
    """Of a class, those that fit at once: with an engine's cache of so many tokens, then in each
    of sizing.need's arguments. All who would fit is right too where that is more than the class.
    """
    if check.unanswered(answers):
        return
    hints = ["your engine: tokens in its cache over tokens of a pupil, rounded down"] + [
        f"{what}: what the card has left after weights and rest, over the cache of one pupil, "
        "rounded down" for what in ("the laptop", "the data centre's card")]
    fitting = [cache_tokens // tokens,
               *(sizing.need(**deployment).fitting for deployment in deployments)]
    if not isinstance(answers, list | tuple) or len(answers) != len(fitting):
        raise check.WrongAnswer(f"a list of {len(fitting)} numbers, one a deployment")
    if check.unanswered(*answers):
        return
    users = deployments[0]["users"]
    for answer, most, hint in zip(answers, fitting, hints, strict=True):
        if answer not in (most, min(most, users)):
            raise check.WrongAnswer(hint)
    check.right(f"{', '.join(map(str, fitting))} would fit at once; the class has {users}")
