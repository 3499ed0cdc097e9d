"""What losses of language-model trainers compute: what is audited, and how it was read."""
