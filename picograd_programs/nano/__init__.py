"""nano: a chat model from nothing, by one dial: vocabulary, pretraining, conversations, sums by reinforcement."""
