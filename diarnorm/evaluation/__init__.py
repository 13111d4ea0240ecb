"""Hypotheses against references: recordings, scores, tables, figures."""
