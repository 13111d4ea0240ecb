"""Robustness: corruptions of recordings, and what they do to turns."""
