"""One function for each command: what the numbered scripts do."""
