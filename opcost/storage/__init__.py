"""Files and their formats: tables, counts, configs."""
