"""A small model with random weights as a GGUF file: what `picograd chat` needs, in 100 KB."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from picograd_programs.data.bpe import LETTER_OF

TEMPLATE = (
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}{{ '<|im_start|>system\n"
    "Be brief.<|im_end|>\n' }}{% endif %}"
    "{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
TOKENS = [*LETTER_OF, "er", "<|im_start|>", "<|im_end|>"]
WIDTH, HIDDEN, SHARED = 64, 96, 32
SHAPES = {
    "attn_norm": (WIDTH,), "ffn_norm": (WIDTH,), "attn_q": (WIDTH, WIDTH), "attn_k": (SHARED, WIDTH),
    "attn_v": (SHARED, WIDTH), "attn_output": (WIDTH, WIDTH), "ffn_gate": (HIDDEN, WIDTH), "ffn_up": (HIDDEN, WIDTH),
    "ffn_down": (WIDTH, HIDDEN),
}  # fmt: skip


def write_model(path: Path, template: str = TEMPLATE, context: int = 256) -> Path:
    """Writes the file, matrices in four bits, the table of embeddings in eight."""
    gguf = pytest.importorskip("gguf", reason="the gguf package, which writes these files, is not installed")
    rng, writer = np.random.default_rng(0), gguf.GGUFWriter(path, "llama")
    writer.add_context_length(context)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(2)
    writer.add_feed_forward_length(HIDDEN)
    writer.add_head_count(4)
    writer.add_head_count_kv(2)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(TOKENS)
    writer.add_token_types([1] * 257 + [3, 3])
    writer.add_token_merges(["e r"])
    writer.add_eos_token_id(258)
    writer.add_chat_template(template)
    shapes = {"token_embd": (len(TOKENS), WIDTH), "output_norm": (WIDTH,)}
    shapes |= {f"blk.{layer}.{name}": shape for layer in range(2) for name, shape in SHAPES.items()}
    for name, shape in shapes.items():
        array = (rng.normal(size=shape) * 0.2 + (len(shape) == 1)).astype(np.float32)
        kind = {"token_embd": gguf.GGMLQuantizationType.Q8_0}.get(name, gguf.GGMLQuantizationType.Q4_1)
        if len(shape) == 1:
            writer.add_tensor(f"{name}.weight", array)
        else:
            writer.add_tensor(f"{name}.weight", gguf.quants.quantize(array, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
