"""The path of a record, from decoding to its outcome. Pure: no threads, sockets or clocks."""
