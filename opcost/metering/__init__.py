"""The energy of a window of any code: power as a function of time, windows, results and their rows."""
