"""Settings and ready-made configurations that are shipped with the package."""
