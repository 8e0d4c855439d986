"""A drafter for DeepInfer."""
