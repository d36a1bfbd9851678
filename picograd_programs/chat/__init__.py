"""A dialogue with a language model: turns as tokens, an answer token by token, the terminal."""
