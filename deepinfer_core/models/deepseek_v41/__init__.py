"""DeepSeek-V4.1: config, weights and the forward pass."""
