"""Simulated model servers: what a picker and its clients see of vLLM, without a GPU."""
