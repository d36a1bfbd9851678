"""Exercise of chapter 17: one step of a GRU.

Test it:  python -m pytest docs/course/exercises/test_17_rnn_and_lstm.py
"""


def gru_step(h, x, w, u, b, d):
    """Returns the next state, (B, H).

        r = sigmoid(x @ w_r + b_r + h @ u_r + d_r)             reset: how much of h is seen
        z = sigmoid(x @ w_z + b_z + h @ u_z + d_z)             update: how much of h is kept
        n = tanh(x @ w_n + b_n + r * (h @ u_n + d_n))          the new state
        next = (1 - z) * n + z * h

    Args:
      h:  (B, H) tensor, the state
      x:  (B, D) tensor, the input
      w:  (D, 3 H) tensor; w_r, w_z and w_n are side by side
      u:  (H, 3 H) tensor, likewise
      b:  (3 H,) tensor, likewise
      d:  (3 H,) tensor, likewise
    """
    return h
