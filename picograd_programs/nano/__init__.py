"""nano: a chat model from scratch, sized by one setting: vocabulary, pretraining, conversations, reinforcement learning."""
