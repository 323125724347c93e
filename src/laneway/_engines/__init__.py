"""Where an app runs: Spark, or this process."""
