"""Reads the text of an engine's /metrics with Prometheus' own parser."""

from prometheus_client.parser import text_string_to_metric_families

from helpers.errors import LabError


def samples(text):
    """Every sample (name, labels, value) of the text, `_created` series (start times) left out."""
    for family in text_string_to_metric_families(text):
        yield from (s for s in family.samples if not s.name.endswith("_created"))


def values(text):
    """{name: value}, summed over the labels of model and engine.

    A bare name is the sum over all its labels; a series with other labels is there as well, as
    name{label="value"}.
    """
    found = {}
    for sample in samples(text):
        labels = {k: v for k, v in sample.labels.items() if k not in ("model_name", "engine")}
        labelled = ",".join(f'{key}="{value}"' for key, value in sorted(labels.items()))
        names = {sample.name, f"{sample.name}{{{labelled}}}" if labels else sample.name}
        if "le" in labels:  # buckets are cumulative: their sum means nothing
            names.discard(sample.name)
        for name in names:
            found[name] = found.get(name, 0.0) + sample.value
    return found


def cache_info(text):
    """The labels of vllm:cache_config_info: block_size, kv_cache_size_tokens and others."""
    for sample in samples(text):
        if sample.name == "vllm:cache_config_info":
            return sample.labels
    raise LabError("The engine does not report its cache.",
                   cause="Its release is older than the course.", fix="Use vLLM 0.25 or later.")
