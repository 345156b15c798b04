"""Command lines and logs of runs."""
