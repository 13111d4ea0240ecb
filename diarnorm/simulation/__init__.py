"""Conversations from utterances: who speaks when, how it sounds, its reference."""
