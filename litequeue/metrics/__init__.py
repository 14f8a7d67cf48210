"""Metrics for Prometheus: what a queue file, and a worker in this process, can tell of themselves.

Owns: their definitions, the reading of the file, the counting of a worker's events, and both ways out: text, and
`prometheus_client`. Leaves out: the command (`cli.metrics`).
"""

from litequeue.metrics.collector import Collector
from litequeue.metrics.server import MetricsServer

__all__ = ["Collector", "MetricsServer"]
