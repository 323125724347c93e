"""What a user writes: apps, topics, handlers, retries. No I/O."""
