"""The plugin door: hook specifications, the guarded loader, the registry and the choice of a backend.

Nothing here runs during a step: hooks are called once, at set-up, and leave plain factories behind.
"""
