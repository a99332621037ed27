"""Pointsman: picks the model server for each LLM request that passes an Envoy."""

from importlib.metadata import version as _version

__version__ = _version("pointsman")
