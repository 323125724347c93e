"""Health: how an app is doing and what its partitions wait for, the same for every engine.

What is judged here are snapshots: plain values that an engine gives, taken in this process or sent by another one.
"""
