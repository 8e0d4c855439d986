"""Small V4.1 checkpoints in the official format, with a tokenizer, as model sources. Nothing here runs a model."""
