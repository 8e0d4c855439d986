"""What a user touches: parameters, outputs, errors, configuration and the LLM class."""
