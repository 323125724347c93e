"""The demo: its own broker, an app on Spark, and a check of every call."""

from laneway.devkit.demo._figures import Figures
from laneway.devkit.demo._orders import Mix, make_orders
from laneway.devkit.demo._run import PARTITIONS, Interrupted, Show, perform

__all__ = ["PARTITIONS", "Figures", "Interrupted", "Mix", "Show", "make_orders", "perform"]
