"""Converts a GGUF file into a bfloat16 model folder; a process of its own: the imports are heavy.

    python -m helpers.gguf FILE.gguf FOLDER
"""

import sys
from pathlib import Path


def convert(gguf, folder):
    """Dequantize `gguf` and save model and tokenizer into `folder` as safetensors."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    source, file = str(gguf.parent), gguf.name
    model = AutoModelForCausalLM.from_pretrained(
        source, gguf_file=file, dtype=torch.bfloat16,
        quantization_config=GgufConfig(dequantize=True),
    )
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(source, gguf_file=file).save_pretrained(folder)


if __name__ == "__main__":
    convert(Path(sys.argv[1]), Path(sys.argv[2]))
