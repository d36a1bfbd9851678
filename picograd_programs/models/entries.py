"""The entries of a config.json, or another dict: each is read, must have one value, or is known to have no effect.

Others are refused, since an unread entry could silently give a wrong result.

Source: Hugging Face, transformers, `PretrainedConfig` and the configurations of its networks.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any

from picograd.errors import DataError

NEEDED = object()  # default of a required entry
NUMBER_MAX = 2**31 - 1
LAYERS_MAX = 10_000  # larger numbers mean damage: the layers' names alone would fill the memory
# Entries of trainings (such as dropout), samplers, classifiers and programs
HARMLESS = frozenset({
    "architectures", "model_type", "torch_dtype", "dtype", "transformers_version", "use_cache", "auto_map",
    "initializer_range", "name_or_path", "attention_dropout", "attention_probs_dropout_prob", "hidden_dropout",
    "hidden_dropout_prob", "attn_pdrop", "embd_pdrop", "resid_pdrop", "residual_dropout", "embedding_dropout",
    "classifier_dropout", "classifier_dropout_prob", "gradient_checkpointing", "pretraining_tp", "bos_token_id",
    "eos_token_id", "pad_token_id", "unk_token_id", "sep_token_id", "cls_token_id", "decoder_start_token_id",
    "tokenizer_class", "attention_softmax_in_fp32", "scale_attention_softmax_in_fp32", "cache_implementation",
    "attn_implementation", "use_bfloat16", "output_attentions", "output_hidden_states", "output_scores", "return_dict",
    "return_dict_in_generate", "torchscript", "do_sample", "early_stopping", "max_length", "min_length", "num_beams",
    "num_beam_groups", "diversity_penalty", "temperature", "top_k", "top_p", "typical_p", "repetition_penalty",
    "length_penalty", "no_repeat_ngram_size", "encoder_no_repeat_ngram_size", "bad_words_ids", "num_return_sequences",
    "chunk_size_feed_forward", "forced_bos_token_id", "forced_eos_token_id", "remove_invalid_values",
    "exponential_decay_length_penalty", "suppress_tokens", "begin_suppress_tokens", "task_specific_params",
    "problem_type", "id2label", "label2id", "num_labels", "finetuning_task", "prefix", "tf_legacy_loss", "summary_type",
    "summary_use_proj", "summary_activation", "summary_proj_to_labels", "summary_first_dropout",
    "transformers.js_config", "is_llama_config", "max_sequence_length",
})  # fmt: skip
PRIVATE = re.compile(r"_|unsloth")  # prefixes of a program's own entries
FIXED: dict[str, Any] = {  # required values for all networks here
    "is_encoder_decoder": False, "is_decoder": False, "add_cross_attention": False, "cross_attention_hidden_size": None,
    "pruned_heads": {}, "tie_encoder_decoder": False, "rope_interleaved": False, "scale_attn_weights": True,
    "use_bidirectional_attention": False, "lm_head_bias": False,
}  # fmt: skip


class Entries:
    """The entries of a JSON dict. Each is read by name; `check_empty` finds unread ones.

    Args:
      content:   the dict
      where:     its name in error messages
      defaults:  values of missing entries; NEEDED: the entry is required. An entry without a default is not looked for:
      `get` returns its neutral value
      names:     names of entries here -> in the dict, if they differ

    >>> said = Entries({"hidden_size": 8}, "config.json", {"width": NEEDED, "eps": 1e-6}, {"width": "hidden_size"})
    >>> said.whole("width"), said.number("eps"), said.flag("is_tied", neutral=True)
    (8, 1e-06, True)
    >>> said.check_empty(FIXED)
    """

    def __init__(self, content: Mapping[str, Any], where: str, defaults: Mapping[str, Any], names: Mapping[str, str]):
        self.left, self.where, self.defaults, self.names = dict(content), where, defaults, names

    def get(self, key: str, neutral: Any = None) -> Any:
        """Returns an entry.

        Raises:
          DataError: a required entry is missing.
        """
        if key not in self.defaults:
            return neutral
        name = self.names.get(key, key)
        value = self.left.pop(name, self.defaults[key])
        if value is NEEDED:
            raise DataError(f"{self.where} has no {name}.")
        return value

    def number(self, key: str, neutral: float | None = None, is_whole: bool = False) -> Any:
        """Returns a number above 0, or None.

        Raises:
          DataError: the value is something else, or a required one is missing.
        """
        value = self.get(key, neutral)
        kinds = (int,) if is_whole else (int, float)
        if value is None and self.defaults.get(key) is not NEEDED:
            return None
        if isinstance(value, bool) or not isinstance(value, kinds) or not 0 < value <= NUMBER_MAX:
            raise self.wrong(key, value, f"a {'whole ' * is_whole}number above 0 is needed")
        return value

    def whole(self, key: str, neutral: int | None = None) -> Any:
        """Returns a positive integer, or None. Raises as `number` does."""
        return self.number(key, neutral, True)

    def size(self, key: str, most: int = NUMBER_MAX) -> int:
        """Returns an integer from 1 to `most`; null is refused.

        Raises:
          DataError: the value is something else, or a required one is missing.
        """
        value: int | None = self.whole(key)
        if value is None or value > most:
            raise self.wrong(key, value, f"a whole number from 1 to {most:,} is needed")
        return value

    def rate(self, key: str) -> float:
        """Returns a number above 0; null is refused. Raises as `size` does."""
        value: float | None = self.number(key)
        if value is None:
            raise self.wrong(key, value, "a number above 0 is needed")
        return value

    def one_of(self, key: str, known: Collection[str]) -> str:
        """Returns a known name.

        Raises:
          DataError: the name is unknown, or the value is something else.
        """
        value = self.get(key)
        if not isinstance(value, str) or value not in known:
            raise self.wrong(key, value, f"{', '.join(known)} are known")
        return value

    def flag(self, key: str, neutral: bool = False) -> bool:
        """Returns true or false; null is false.

        Raises:
          DataError: the value is something else.
        """
        value = self.get(key, neutral)
        if value is not None and not isinstance(value, bool):
            raise self.wrong(key, value, "true or false is needed")
        return bool(value)

    def wrong(self, key: str, value: Any, fact: str) -> DataError:
        """Returns the error for the value of an entry."""
        return DataError(f"{self.where} says {self.names.get(key, key)} is {str(value)[:60]}; {fact}.")

    def check_empty(self, fixed: Mapping[str, Any]) -> None:
        """Checks that unread entries have no effect on the computation.

        Args:
          fixed:  required values of such entries; Any: all values are allowed

        Raises:
          DataError: an entry is unknown, or has another value.
        """
        for key, value in self.left.items():
            if key in fixed:
                if value is not None and fixed[key] is not Any and value != fixed[key]:
                    raise DataError(f"{self.where} says {key} is {str(value)[:60]}; only {fixed[key]} is supported.")
            elif value is not None and key not in HARMLESS and not PRIVATE.match(key):
                raise DataError(
                    f"{self.where} says {key[:60]} is {str(value)[:60]}, which is not supported.",
                    "if it does not change the computation, remove it from the file.",
                )  # fmt: skip
