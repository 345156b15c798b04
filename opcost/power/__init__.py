"""Power traces, windows and mean power, and the ports of meter and clock."""
