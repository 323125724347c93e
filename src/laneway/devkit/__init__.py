"""For development: a broker, demo, benchmarks, diagnosis and the checker of histories."""
