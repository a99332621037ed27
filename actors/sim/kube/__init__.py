"""An in-memory Kubernetes API server: what clients see of a real one, without a cluster."""
