"""Recipes that put this library's operations under other people's trainers."""
