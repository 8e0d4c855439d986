"""An example plugin: an observer and a command."""
