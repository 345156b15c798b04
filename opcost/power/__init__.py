"""Power readings as values: traces, windows, mean power, and the ports of meter and clock."""
