"""Tokenizer, incremental detokenisation, chat prompts."""
