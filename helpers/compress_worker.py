"""Compresses one model with llmcompressor; runs in .venv-compress. helpers.compress starts it.

    .venv-compress/bin/python helpers/compress_worker.py SOURCE TARGET RECIPE

SOURCE and TARGET are folders, RECIPE is the JSON of what QuantizationModifier takes.
"""

import json
import sys

from llmcompressor import oneshot
from llmcompressor.modifiers.quantization import QuantizationModifier
from transformers import AutoModelForCausalLM

source, target, recipe = sys.argv[1:]
model = AutoModelForCausalLM.from_pretrained(source, dtype="auto")
oneshot(model=model, recipe=QuantizationModifier(**json.loads(recipe)))
model.save_pretrained(target, save_compressed=True)
