"""A server that answers rightly, and is none of ours."""

from tests.bench.conftest import baseline_port as baseline_port
