"""Losses over tokens: styles × faults × clean variants, labelled by exact gradients."""
