"""The parts of ``bench/soak.py``: a stage, a load, a crew of workers, faults, and a judge."""
