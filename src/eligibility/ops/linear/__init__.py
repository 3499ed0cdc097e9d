"""The same operations through a language model's last layer, without its logits in memory."""
