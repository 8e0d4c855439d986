"""Reading safetensors checkpoints strictly."""
