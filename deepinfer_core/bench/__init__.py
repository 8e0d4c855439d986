"""Measuring the engine: what `deepinfer bench` prints. Nothing here asserts a time."""
