"""A constraint for DeepInfer: an answer is one of the texts that its request lists."""
