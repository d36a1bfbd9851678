"""`picograd sample gpt2`: GPT-2 with weights in the published format, of any of its four sizes.

The file has the names of gpt.py, since both follow OpenAI's code. There a linear layer multiplies x @ W + b, so matrices
are transposed here. The output layer is the table of tokens; masks that some files keep are no weights.

Source: Radford et al. 2019, "Language models are unsupervised multitask learners"; OpenAI's code of GPT-2.

Letters: C width, V vocabulary.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from picograd.errors import DataError, FileError
from picograd.tensor.tensor import Tensor
from picograd_formats.state_file import load
from picograd_programs.chat.answer import Choice, Reader
from picograd_programs.data.bpe import ByteLevel
from picograd_programs.data.vocabulary import byte_level_in, json_in
from picograd_programs.models.gpt import GPT, GPTConfig
from picograd_programs.train.program import Program, check_settings

END = "<|endoftext|>"  # between texts in the training: begins a new one
HEAD_WIDTH = 64  # features of a head in all four sizes; config.json may say another number of heads
SAID = {  # in config.json: what picograd computes
    "model_type": "gpt2", "activation_function": "gelu_new", "layer_norm_epsilon": 1e-5, "scale_attn_weights": True,
    "scale_attn_by_inverse_layer_idx": False, "tie_word_embeddings": True, "add_cross_attention": False,
}  # fmt: skip
MASK = re.compile(r"h\.\d+\.attn\.(?:masked_)?bias")  # what a position may see, kept in files of old
CONV1D = re.compile(r"h\.\d+\.(?:attn|mlp)\.c_\w+\.weight")  # (inputs, outputs)
LAYER = re.compile(r"h\.(\d+)\.ln_1\.weight")


# ---- weights ----
def read_gpt2(path: Path) -> GPT:
    """Returns the network of a model.safetensors or a pytorch_model.bin, its weights in float32.

    Its shape follows from the shapes of the tensors, and from config.json beside the file where there is one.

    Raises:
      FileError: a file cannot be read.
      DataError: one is damaged, or has another network.
    """
    try:
        weights = load(path)
    except FileError as error:
        hint = "--weights names model.safetensors or pytorch_model.bin, as GPT-2 is published."
        raise FileError(error.fact, hint) from None
    if not isinstance(weights, dict) or not all(isinstance(value, Tensor) for value in weights.values()):
        raise DataError(f"{path}: has more than tensors by name, as files of GPT-2 do not.")
    weights = {name.removeprefix("transformer."): value for name, value in weights.items()}
    weights = {name: value for name, value in weights.items() if not MASK.fullmatch(name)}
    output, table = weights.pop("lm_head.weight", None), weights.get("wte.weight")
    said = path.with_name("config.json")
    try:
        config = config_of(weights, json_in(said) if said.is_file() else {})
        if output is not None and (table is None or output.shape != table.shape or not (output == table).all()):
            raise DataError("its lm_head.weight is not its wte.weight: the output layer of GPT-2 is the table of tokens.")
        return network(config, weights)
    except DataError as error:
        raise DataError(error.fact if str(said) in error.fact else f"{path}: {error.fact}", error.hint) from None


def config_of(weights: Mapping[str, Tensor], said: Mapping[str, Any]) -> GPTConfig:
    """Returns the shape of a network.

    Args:
      weights:  by their published names
      said:     contents of config.json; {} where it is missing

    Raises:
      DataError: the weights are not GPT-2's, or config.json says something else.

    >>> tables = {"wte.weight": Tensor.zeros(50257, 1600), "wpe.weight": Tensor.zeros(1024, 1600)}
    >>> config_of({**tables, "h.0.ln_1.weight": Tensor.zeros(1600)}, {}).heads
    25
    """
    tokens, positions = weights.get("wte.weight"), weights.get("wpe.weight")
    layers = len({match[1] for name in weights if (match := LAYER.fullmatch(name))})
    if tokens is None or positions is None or not tokens.ndim == positions.ndim == 2 or not layers:
        raise DataError("has no tables wte.weight and wpe.weight and no layers h.0, h.1, ...: it is no GPT-2.")
    for name, value in SAID.items():
        if (found := said.get(name, value)) != value:
            raise DataError(f"config.json beside it says {name} is {str(found)[:40]}; with {value} it is computed here.")
    (vocabulary, width), block = tokens.shape, positions.shape[0]
    heads = said.get("n_head", width // HEAD_WIDTH if width % HEAD_WIDTH == 0 else 0)
    if type(heads) is not int or heads < 1 or width % heads:
        hint = "" if said else "put config.json, which says n_head, beside it."
        raise DataError(f"has {str(heads)[:20]} heads, which do not divide its width of {width}.", hint)
    return GPTConfig(vocabulary, block, layers, heads, width, gelu="tanh")


def network(config: GPTConfig, weights: dict[str, Tensor]) -> GPT:
    """Returns the network with published weights, which it takes out of the dict.

    Raises:
      DataError: a tensor is missing, has another shape, is not of floats, or belongs to no part.
    """
    model, state = GPT(config), dict[str, Tensor]()
    for name, parameter in model.named_parameters():
        is_turned, value = CONV1D.fullmatch(name), weights.pop(name, None)
        shape = parameter.shape[::-1] if is_turned else parameter.shape
        if value is None or value.shape != shape or not value.is_floating_point():
            found = "none" if value is None else f"one of {value.shape}, {value.dtype}"
            raise DataError(f"has to have a tensor {name} of {shape}, of floats; it has {found}.")
        state[name] = (value.T.contiguous() if is_turned else value).float()
    if weights:
        raise DataError(f"has a tensor {next(iter(weights))[:60]!r}, which GPT-2 does not have.")
    model.load_state_dict(state, assign=True)
    del value, state
    for parameter in model.parameters():
        parameter.realize()  # one by one: a matrix and its transpose are not in memory for all of them
    model.requires_grad_(False)
    model.eval()
    return model


# ---- picograd sample gpt2 ----
@dataclass(frozen=True)
class SampleGpt2Settings(Choice):
    """Settings of `picograd sample gpt2`; draws as in the published samples."""

    # model.safetensors or pytorch_model.bin of GPT-2, with vocab.json and merges.txt, or tokenizer.json, beside it
    weights: Path = Path("model.safetensors")
    prompt: str = ""  # text to continue; without one, a new text
    length: int = 200  # most tokens to draw
    num: int = 1  # how many texts
    seed: int = 0  # of draws
    temperature: float = 1.0
    top_k: int = 40
    top_p: float = 1.0
    repetition: float = 1.0


class GPT2(Program):
    """Continues a text with GPT-2's weights, which a user has."""

    name = "gpt2"
    samples: ClassVar[type | None] = SampleGpt2Settings
    about = "Continues a text with the weights of GPT-2, in the published format."

    @classmethod
    def sample(cls, settings: SampleGpt2Settings) -> str:
        """Returns the prompt with new text after it; several texts have a line of dashes between them.

        Raises:
          PicogradError: a setting is out of its range, a file is missing or damaged, or the prompt does not fit.
        """
        check_settings(settings)
        model, tokenizer = read_gpt2(settings.weights), byte_level_in(settings.weights.absolute().parent)
        if len(tokenizer.tokens) != model.config.vocabulary:
            raise DataError(
                f"{settings.weights}: has vectors of {model.config.vocabulary:,} tokens, and the vocabulary beside it has"
                f" {len(tokenizer.tokens):,}: they belong to different models."
            )
        reader = Reader(model, model.config.block)
        texts = [continued(reader, tokenizer, settings, settings.seed + number) for number in range(settings.num)]
        return f"\n{'-' * 20}\n".join(texts)


def continued(reader: Reader, tokenizer: ByteLevel, settings: SampleGpt2Settings, seed: int) -> str:
    """Returns the prompt and the text after it, which ends where the model ends it, or its context is full.

    Raises:
      DataError: the prompt is longer than the context, or is empty and the vocabulary has no token to begin with.
    """
    begin = [tokenizer.control[END]] if END in tokenizer.control else []
    tokens = tokenizer.encode(settings.prompt) or begin
    if not 1 <= len(tokens) < reader.length:
        raise DataError(f"--prompt: has {len(tokens):,} tokens; 1 to {reader.length - 1:,} can be continued.")
    reader.tokens = []
    drawn = [*reader.answer(tokens, {*begin}, settings.length, settings, seed)]
    print(f"[read {reader.read_speed}; wrote {reader.write_speed}]", file=sys.stderr, flush=True)
    return settings.prompt + tokenizer.decode(drawn)
