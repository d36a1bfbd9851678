"""Exercise of chapter 18: a causal attention, one word at a time.

Test it:  python -m pytest docs/course/exercises/test_18_bert_and_gpt.py
"""

import numpy as np


def softmax(x):
    """Returns exp(x) / sum(exp(x)) along the last axis."""
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def attention(x, w_q, w_k, w_v):
    """Returns the causal attention of a whole text: (T, C) -> (T, C)."""
    q, k, v = x @ w_q, x @ w_k, x @ w_v
    scores = q @ k.T / np.sqrt(q.shape[1])
    hidden = np.arange(len(x))[None, :] > np.arange(len(x))[:, None]
    return softmax(np.where(hidden, -np.inf, scores)) @ v


def step(word, cache, w_q, w_k, w_v):
    """Returns (what `attention` gives for the newest word, the new cache).

    Multiplies one vector with each weight, however many words came before.

    Args:
      word:   (C,), the newest one
      cache:  None at the first word; else what the step before returned
    """
    return word, cache
