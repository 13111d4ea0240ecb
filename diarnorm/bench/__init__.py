"""Speed on this machine, as ratios measured side by side."""
