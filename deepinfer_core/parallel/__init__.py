"""Ranks, communicators and expert placement."""
