"""What the engines share: configuration, topics, recovery, runners, error runs."""
