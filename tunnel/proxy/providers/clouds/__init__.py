"""Claude models in the clouds of others: the Messages API in the envelope of AWS or Google, signed on the laptop."""
