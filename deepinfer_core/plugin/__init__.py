"""The plugin door: hook specifications, the guarded loader and the registry."""
