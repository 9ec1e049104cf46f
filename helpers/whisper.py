"""Whisper's shape as a folder that vLLM can serve with random weights: its tokenizer and its ears.

Whisper's own vocabulary is not installed with the course. What the engine needs of it are the
special tokens, each at its place (openai/whisper, whisper/tokenizer.py): below them are the 50,257
ids of text, for which SmolLM2's tokens stand in, filled up with names.
"""

import json
import shutil
from pathlib import Path

from helpers.checkpoint import name_every_id

TEXT_TOKENS, TIMESTAMPS = 50_257, 1501  # every 0.02 s of 30 s, both ends
# WhisperFeatureExtractor (transformers), whose defaults are these: 30 s of sound at 16 kHz become
# 3,000 frames of 80 numbers, one every 160 samples.
EARS = {"feature_extractor_type": "WhisperFeatureExtractor", "processor_class": "WhisperProcessor",
        "chunk_length": 30, "feature_size": 80, "hop_length": 160, "n_fft": 400,
        "n_samples": 480_000, "nb_max_frames": 3000, "padding_side": "right", "padding_value": 0.0,
        "return_attention_mask": False, "sampling_rate": 16_000}


def special_tokens():
    """Those of the multilingual models, in their order from id 50,257 on: 51,865 tokens in all."""
    from transformers.models.whisper.tokenization_whisper import LANGUAGES  # slow: only here

    languages = list(LANGUAGES)[:99]  # the hundredth came with large-v3
    return ["<|endoftext|>", "<|startoftranscript|>", *(f"<|{name}|>" for name in languages),
            "<|translate|>", "<|transcribe|>", "<|startoflm|>", "<|startofprev|>",
            "<|nospeech|>", "<|notimestamps|>",
            *(f"<|{0.02 * step:.2f}|>" for step in range(TIMESTAMPS))]


def write_tokenizer(folder, text_model):
    """tokenizer.json, its settings, and the feature extractor's, into `folder`.

    text_model: a folder with the tokenizer whose tokens stand in for Whisper's text. Its special
    tokens lose that role: Whisper gives some of their names to ids of its own.
    """
    file = Path(folder) / "tokenizer.json"
    shutil.copy(Path(text_model) / "tokenizer.json", file)
    tokenizer = json.loads(file.read_text(encoding="utf-8"))
    vocabulary = tokenizer["model"]["vocab"]
    for token in tokenizer["added_tokens"]:
        vocabulary[f"Ġ({token['id']})"] = vocabulary.pop(token["content"])
    special = special_tokens()
    tokenizer["added_tokens"] = [
        {"id": TEXT_TOKENS + place, "content": text, "single_word": False, "lstrip": False,
         "rstrip": False, "normalized": False, "special": True}
        for place, text in enumerate(special)]
    file.write_text(json.dumps(tokenizer, ensure_ascii=False), encoding="utf-8")
    name_every_id(folder, TEXT_TOKENS)
    settings = {"tokenizer_class": "WhisperTokenizer", "processor_class": "WhisperProcessor",
                "model_max_length": 1024, **dict.fromkeys(
                    ("bos_token", "eos_token", "unk_token", "pad_token"), special[0])}
    for name, content in (("tokenizer_config", settings), ("preprocessor_config", EARS)):
        (Path(folder) / f"{name}.json").write_text(json.dumps(content, indent=1))
