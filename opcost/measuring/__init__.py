"""The measuring procedure: from a workload, a meter and a clock to a record with errors."""
