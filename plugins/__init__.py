"""The built-in plugins: this is the one list of all of them."""

from __future__ import annotations

from typing import Any, Final

from .absent import ABSENT as ABSENT
from .admission import ProbabilisticAdmitter
from .attributes import EndpointAttributeFilter, EndpointAttributeScorer
from .concurrency import ConcurrencyDetector
from .context_length import ContextLengthAware
from .core_metrics import CoreMetricsExtractor
from .data_parallel import DataParallelProfileHandler
from .deciders import AlwaysDisaggMultimodalDecider, AlwaysDisaggPdDecider, PrefixBasedPdDecider
from .disagg import DisaggProfileHandler
from .header_label import HeaderLabelAffinityScorer
from .header_profiles import HeaderProfileHandler
from .in_flight import InFlightLoadProducer
from .in_flight_scorers import ActiveRequestScorer, TokenLoadScorer
from .labels import ByLabel, DecodeFilter, EncodeFilter, LabelSelectorFilter, PrefillFilter
from .load import KvCacheUtilizationScorer, QueueScorer, RunningRequestsScorer
from .load_aware import LoadAwareScorer
from .lora import LoraAffinityScorer
from .no_hit_lru import NoHitLruScorer
from .parsers import (
    AnthropicParser,
    OpenAIParser,
    PassthroughParser,
    SglangHttpParser,
    VertexAIParser,
    VllmGrpcParser,
    VllmHttpParser,
)
from .pd import DisaggHeadersHandler, PdProfileHandler
from .pickers import MaxScorePicker, RandomPicker, WeightedRandomPicker
from .prefix_affinity import PrefixCacheAffinityFilter
from .prefix_cache import ApproxPrefixCacheProducer, PrefixCacheScorer
from .profile_handlers import SingleProfileHandler
from .served_models import ModelsExtractor, ModelsSource
from .served_verifier import ServedEndpointVerifier
from .session_affinity import SessionAffinityFilter, SessionAffinityScorer
from .session_id import SessionIdProducer
from .sources import FileDiscovery, MetricsSource
from .testing_filter import HeaderBasedTestingFilter
from .token_producer import TokenProducer
from .topology import TopologyAffinityFilter, TopologyAffinityScorer, TopologyExtractor
from .utilization import UtilizationDetector, UtilizationFilter

BUILT_IN: Final[tuple[type[Any], ...]] = (
    # parsers
    OpenAIParser,
    AnthropicParser,
    VllmHttpParser,
    SglangHttpParser,
    VllmGrpcParser,
    VertexAIParser,
    PassthroughParser,
    # producers and admission
    TokenProducer,
    ApproxPrefixCacheProducer,
    InFlightLoadProducer,
    SessionIdProducer,
    TopologyExtractor,
    ProbabilisticAdmitter,
    UtilizationDetector,
    ConcurrencyDetector,
    # profile handlers and whom they ask
    SingleProfileHandler,
    HeaderProfileHandler,
    DisaggProfileHandler,
    PdProfileHandler,
    DisaggHeadersHandler,
    DataParallelProfileHandler,
    PrefixBasedPdDecider,
    AlwaysDisaggPdDecider,
    AlwaysDisaggMultimodalDecider,
    # filters
    LabelSelectorFilter,
    ByLabel,
    DecodeFilter,
    PrefillFilter,
    EncodeFilter,
    EndpointAttributeFilter,
    PrefixCacheAffinityFilter,
    SessionAffinityFilter,
    TopologyAffinityFilter,
    UtilizationFilter,
    HeaderBasedTestingFilter,
    # scorers
    QueueScorer,
    RunningRequestsScorer,
    KvCacheUtilizationScorer,
    LoadAwareScorer,
    ActiveRequestScorer,
    TokenLoadScorer,
    PrefixCacheScorer,
    NoHitLruScorer,
    LoraAffinityScorer,
    ContextLengthAware,
    SessionAffinityScorer,
    HeaderLabelAffinityScorer,
    EndpointAttributeScorer,
    TopologyAffinityScorer,
    # what the response is told
    ServedEndpointVerifier,
    # pickers
    MaxScorePicker,
    RandomPicker,
    WeightedRandomPicker,
    # endpoints and what is known of them
    MetricsSource,
    CoreMetricsExtractor,
    ModelsSource,
    ModelsExtractor,
    FileDiscovery,
)
