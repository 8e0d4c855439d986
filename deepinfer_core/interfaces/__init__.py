"""Protocols and frozen data that rooms and plugins share. No work happens here."""
