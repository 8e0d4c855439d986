"""A logits processor for DeepInfer."""
