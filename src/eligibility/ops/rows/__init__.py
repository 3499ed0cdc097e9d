"""Operations over rows of logits, as autograd nodes."""
