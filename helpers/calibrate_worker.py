"""Calibrates the scales of an FP8 KV cache with llmcompressor; runs in .venv-compress.

    .venv-compress/bin/python -P helpers/calibrate_worker.py SOURCE TARGET ASKED

SOURCE and TARGET are folders, ASKED a JSON file: texts, a list to calibrate on, and scheme, the
kv_cache_scheme. The weights stay as they are; a checkpoint with k_scale and v_scale of each layer
is left in TARGET.
"""

import json
import sys
from pathlib import Path

from datasets import Dataset
from llmcompressor import oneshot
from llmcompressor.modifiers.quantization import QuantizationModifier
from transformers import AutoModelForCausalLM, AutoTokenizer

LONGEST = 512  # tokens of a sample

source, target, file = sys.argv[1:]
asked = json.loads(Path(file).read_text(encoding="utf-8"))
tokenizer = AutoTokenizer.from_pretrained(source)
samples = Dataset.from_list([dict(tokenizer(text, truncation=True, max_length=LONGEST))
                             for text in asked["texts"]])
model = AutoModelForCausalLM.from_pretrained(source, dtype="auto")
oneshot(model=model, dataset=samples, recipe=QuantizationModifier(kv_cache_scheme=asked["scheme"]),
        max_seq_length=LONGEST, num_calibration_samples=len(samples))
model.save_pretrained(target, save_compressed=True)
tokenizer.save_pretrained(target)
