"""Progress, timeline, metrics and logging."""
