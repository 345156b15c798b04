"""Files: tables, counts, configs. The only place that knows their formats."""
