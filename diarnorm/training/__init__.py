"""Training: batches, losses, optimisers, the run and its record."""
