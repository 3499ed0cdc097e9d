"""Random numbers that a program compares by hand: drawn only as far as it asks."""
