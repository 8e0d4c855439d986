"""From logits to tokens: per-slot state, logits stages, the counter RNG and the draw."""
