"""Batch files in and out."""
