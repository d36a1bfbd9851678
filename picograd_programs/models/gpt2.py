"""`picograd sample gpt2`: GPT-2 with weights in the published format, in any of its four sizes.

The file's names are those of gpt.py, since both follow OpenAI's code. There a linear layer computes x @ W + b, so matrices
are transposed here. The output layer is the token table; the masks in some files are not weights. A nanoGPT checkpoint
has the same names; its layers compute x @ W.T, with or without biases.

Source: Radford et al. 2019, "Language models are unsupervised multitask learners"; OpenAI's code of GPT-2; Karpathy,
       nanoGPT (its checkpoints).

Letters: C width, V vocabulary.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Literal

from picograd.errors import DataError, FileError
from picograd.tensor.tensor import Tensor
from picograd_programs.chat.answer import Choice, Plans, Reader, check_choice
from picograd_programs.data.bpe import Tokenizer
from picograd_programs.data.published import Weights, load_published
from picograd_programs.data.tokenizer_json import tokenizer_in
from picograd_programs.data.vocabulary import check_rows, json_in
from picograd_programs.models.gpt import GPT, GPTConfig
from picograd_programs.train.program import Program

END = "<|endoftext|>"  # separates texts in the training
HINT = "--weights names a file or folder with GPT-2's weights, such as model.safetensors or pytorch_model.bin."
HEAD_WIDTH = 64  # features of a head in all four sizes; config.json may have another number of heads
SAID = {  # values in config.json that picograd supports
    "model_type": "gpt2", "activation_function": "gelu_new", "layer_norm_epsilon": 1e-5, "scale_attn_weights": True,
    "scale_attn_by_inverse_layer_idx": False, "tie_word_embeddings": True, "add_cross_attention": False,
}  # fmt: skip
MASK = re.compile(r"h\.\d+\.attn\.(?:masked_)?bias")  # causal masks in older files
CONV1D = re.compile(r"h\.\d+\.(?:attn|mlp)\.c_\w+\.weight")  # (inputs, outputs)
WIDER = re.compile(r"h\.\d+\.(?:attn\.c_attn|mlp\.c_fc)\.weight")  # more outputs than inputs
LAYER = re.compile(r"h\.(\d+)\.ln_1\.weight")


# ---- weights ----
def read_gpt2(path: Path, tokens: int | None = None, gelu: str = "") -> GPT:
    """Returns the network of published weights or of a nanoGPT checkpoint, with weights in float32.

    Its shape follows from the tensors' shapes, and from config.json beside the file, or the checkpoint's own settings.

    Args:
      path:    as in `load_published`
      tokens:  size of the vocabulary; further rows of the table, its padding, are dropped. None: the table's rows
      gelu:    "none" or "tanh", as in GPTConfig; "": tanh for published weights, none for a nanoGPT checkpoint, which omits
      it: in its first months it used tanh, as do checkpoints that also omit `bias`

    Raises:
      FileError: a file cannot be read.
      DataError: a file is damaged, or has another network.
    """
    try:
        weights, training = load_published(path)
    except FileError as error:
        raise FileError(error.fact, error.hint or HINT, error.errno) from None
    weights = {name: value for name, value in weights.items() if not MASK.fullmatch(name)}
    beside = folder_of(path) / "config.json"
    try:
        said = json_in(beside) if beside.is_file() else training.get("model_args", {})
        config = config_of(weights, said if isinstance(said, dict) else {})
        is_of_old = isinstance(training.get("model_args"), dict) and "bias" not in training["model_args"]
        config = replace(config, gelu=gelu or ("tanh" if is_of_old else config.gelu))
        output, table = weights.pop("lm_head.weight", None), weights["wte.weight"]
        if output is not None and (output.shape != table.shape or not (output == table).all()):
            raise DataError("its lm_head.weight is not its wte.weight: the output layer of GPT-2 is the table of tokens.")
        del output
        if tokens is not None:
            check_rows("wte.weight", table.shape, tokens)
            weights["wte.weight"], config = table[:tokens], replace(config, vocabulary=tokens)
        del table
        return network(config, weights)
    except DataError as error:
        raise DataError(error.fact if str(beside) in error.fact else f"{path}: {error.fact}", error.hint) from None


def folder_of(path: Path) -> Path:
    """Returns the folder of all files that belong to some weights."""
    return path if path.is_dir() else path.absolute().parent


def config_of(weights: Mapping[str, Tensor], said: Mapping[str, Any]) -> GPTConfig:
    """Returns the shape of a network.

    Args:
      weights:  weights by their published names
      said:     contents of config.json, or of a checkpoint's model_args; {} without both

    Raises:
      DataError: the weights are not GPT-2's, or config.json contradicts them.

    >>> tables = {"wte.weight": Tensor.zeros(50257, 1600), "wpe.weight": Tensor.zeros(1024, 1600)}
    >>> config_of({**tables, "h.0.ln_1.weight": Tensor.zeros(1600)}, {}).heads
    25
    """
    tokens, positions = weights.get("wte.weight"), weights.get("wpe.weight")
    layers = len({match[1] for name in weights if (match := LAYER.fullmatch(name))})
    if tokens is None or positions is None or not tokens.ndim == positions.ndim == 2 or not layers:
        raise DataError("has no tables wte.weight and wpe.weight and no layers h.0, h.1, ...: it is not a GPT-2.")
    for name, value in SAID.items():
        if (found := said.get(name, value)) != value:
            raise DataError(f"config.json beside it says {name} is {str(found)[:40]}; only {value} is supported.")
    (vocabulary, width), block = tokens.shape, positions.shape[0]
    heads = said.get("n_head", width // HEAD_WIDTH if width % HEAD_WIDTH == 0 else 0)
    if type(heads) is not int or heads < 1 or width % heads:
        hint = "correct n_head in config.json." if said else "put config.json, which has n_head, into its folder."
        raise DataError(f"has {str(heads)[:20]} heads, which do not divide its width of {width}.", hint)
    for name, value in {"n_layer": layers, "n_embd": width, "n_positions": block}.items():
        if (found := said.get(name, value)) != value:
            raise DataError(
                f"config.json beside it says {name} is {str(found)[:20]}; its tensors have {value}, as wte.weight of"
                f" {tokens.shape}, wpe.weight of {positions.shape} and {layers} layers: they belong to different models.",
                "take both from where the model is published.",
            )
    has_biases = any(name.endswith(".bias") for name in weights)
    gelu = "none" if are_rows_outputs(weights) else "tanh"
    return GPTConfig(vocabulary, block, layers, heads, width, bias=has_biases, gelu=gelu)


def are_rows_outputs(weights: Mapping[str, Tensor]) -> bool:
    """Returns whether linear layers compute x @ W.T, as nanoGPT's, whose GELU is the exact one."""
    shapes = [value.shape for name, value in weights.items() if WIDER.fullmatch(name)]
    return bool(shapes) and all(len(shape) == 2 and shape[0] > shape[1] for shape in shapes)


def network(config: GPTConfig, weights: Weights) -> GPT:
    """Returns the network with published weights, which are removed from the dict.

    Raises:
      DataError: a tensor is missing, has another shape, is not of floats, or belongs to no part.
    """
    model, state, is_conv1d = GPT(config), Weights(), not are_rows_outputs(weights)
    for name, parameter in model.named_parameters():
        is_turned, value = is_conv1d and CONV1D.fullmatch(name), weights.pop(name, None)
        shape = parameter.shape[::-1] if is_turned else parameter.shape
        if value is None or value.shape != shape or not value.is_floating_point():
            found = "none" if value is None else f"one of {value.shape}, {value.dtype}"
            raise DataError(f"must have a tensor {name} of {shape}, of floats; it has {found}.")
        state[name] = (value.T.contiguous() if is_turned else value).float()
    if weights:
        raise DataError(f"has a tensor {next(iter(weights))[:60]!r}, which GPT-2 does not have.")
    model.load_state_dict(state, assign=True)
    del value, state
    for parameter in model.parameters():
        parameter.realize()  # one by one, so that memory holds only one matrix with its transpose
    model.requires_grad_(False)
    model.eval()
    return model


# ---- picograd sample gpt2 ----
@dataclass(frozen=True)
class SampleGpt2Settings(Choice):
    """Settings of `picograd sample gpt2`; draws as in the published samples."""

    # model.safetensors or pytorch_model.bin of GPT-2, the index of its parts, their folder, or a ckpt.pt of nanoGPT; with
    # vocab.json and merges.txt, or tokenizer.json, beside it
    weights: Path = Path("model.safetensors")
    prompt: str = ""  # text to continue; default: a new text
    length: int = 200  # largest number of tokens to draw
    # of a nanoGPT checkpoint, which omits it: exact since May 2023, tanh's approximation before
    gelu: Literal["", "none", "tanh"] = ""
    num: int = 1  # number of texts
    seed: int = 0  # seed of the draws
    temperature: float = 1.0
    top_k: int = 40
    top_p: float = 1.0
    repetition: float = 1.0


class GPT2(Program):
    """Continues a text with GPT-2's weights, which the user provides."""

    name = "gpt2"
    samples: ClassVar[type | None] = SampleGpt2Settings
    about = "Continues a text with the published weights of GPT-2."

    @classmethod
    def sample(cls, settings: SampleGpt2Settings) -> str:
        """Returns the prompt with new text after it; several texts are separated by a line of dashes.

        Raises:
          PicogradError: a setting is out of its range, a file is missing or damaged, or the prompt does not fit.
        """
        check_choice(settings)
        if not settings.weights.exists():
            raise FileError(f"--weights: {settings.weights}: does not exist.", HINT)
        tokenizer = tokenizer_in(folder_of(settings.weights))
        model = read_gpt2(settings.weights, len(tokenizer.tokens), settings.gelu)
        reader = Reader(Plans(model, model.config.block))
        texts = [continued(reader, tokenizer, settings, settings.seed + number) for number in range(settings.num)]
        return f"\n{'-' * 20}\n".join(texts)


def continued(reader: Reader, tokenizer: Tokenizer, settings: SampleGpt2Settings, seed: int) -> str:
    """Returns the prompt and its continuation, up to the end token or the full context.

    Raises:
      DataError: the prompt is longer than the context, or is empty and the vocabulary has no start token.
    """
    begin = [tokenizer.control[END]] if END in tokenizer.control else []
    tokens = tokenizer.encode(settings.prompt) or begin
    if not 1 <= len(tokens) < reader.length:
        raise DataError(f"--prompt: has {len(tokens):,} tokens; 1 to {reader.length - 1:,} can be continued.")
    reader.tokens = []
    drawn = [*reader.answer(tokens, {*begin}, settings.length, settings, seed)]
    print(f"[read {reader.read_speed}; wrote {reader.write_speed}]", file=sys.stderr, flush=True)
    return settings.prompt + tokenizer.decode(drawn)
