"""What every tensor becomes: the plan, and the passes that fill it."""
