"""Sizes and tensors of the cache pools."""
