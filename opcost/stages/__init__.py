"""What the commands do, and the data that several of them read."""
