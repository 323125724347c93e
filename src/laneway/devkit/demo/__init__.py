"""What `laneway demo` runs: a broker of its own, an app on Spark, and a check of every call it made."""

from laneway.devkit.demo._figures import Figures
from laneway.devkit.demo._orders import Mix, make_orders
from laneway.devkit.demo._stage import PARTITIONS, Interrupted, Show, perform

__all__ = ["PARTITIONS", "Figures", "Interrupted", "Mix", "Show", "make_orders", "perform"]
