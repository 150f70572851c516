"""In which order every tensor lies in memory, and parameters packed for it."""
