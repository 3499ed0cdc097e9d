"""What a running program meets instead of its environments, randomness and optimizers."""
