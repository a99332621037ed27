"""The built-in plugins: this is the one list of all of them."""

from __future__ import annotations

from typing import Any, Final

from .core_metrics import CoreMetricsExtractor
from .load import KvCacheUtilizationScorer, QueueScorer, RunningRequestsScorer
from .parsers import OpenAIParser, PassthroughParser
from .pickers import MaxScorePicker, RandomPicker, WeightedRandomPicker
from .profile_handlers import SingleProfileHandler
from .sources import FileDiscovery, MetricsSource

BUILT_IN: Final[tuple[type[Any], ...]] = (
    OpenAIParser,
    PassthroughParser,
    QueueScorer,
    RunningRequestsScorer,
    KvCacheUtilizationScorer,
    MaxScorePicker,
    RandomPicker,
    WeightedRandomPicker,
    SingleProfileHandler,
    MetricsSource,
    CoreMetricsExtractor,
    FileDiscovery,
)
