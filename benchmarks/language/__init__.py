"""What losses of language-model trainers compute: the functions that are audited, and their readings."""
