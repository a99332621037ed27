"""The four kinds that are followed, as far as they are read: everything else is skipped unread.

What the API server would not let in is refused here as well, so that nobody further on meets it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final, Generic, Literal, TypeVar, final

import msgspec
from attrs import field, frozen
from msgspec import Meta, Struct

POOL_GROUP: Final = "inference.networking.k8s.io"
GROUP: Final = "llm-d.ai"
OLDER_GROUP: Final = "inference.networking.x-k8s.io"

ACTIVE_PORTS: Final = "llm-d.ai/active-ports"
OLDER_ACTIVE_PORTS: Final = "inference.networking.k8s.io/active-ports"


class Annotations(Struct, frozen=True, gc=False):
    """The only ones that mean something to us: which of the pool's ports a pod serves."""

    active_ports: str | None = msgspec.field(name=ACTIVE_PORTS, default=None)
    older_active_ports: str | None = msgspec.field(name=OLDER_ACTIVE_PORTS, default=None)


class Reference(Struct, frozen=True, rename="camel", gc=False):
    """Which object it is, and in which version."""

    name: str = ""
    uid: str = ""
    resource_version: str = ""


class Metadata(Reference, frozen=True, gc=False):
    labels: dict[str, str] | None = None
    annotations: Annotations | None = None
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    """Set as soon as the object is being deleted, which may take it a while."""


class Object(Struct, frozen=True, rename="camel", gc=False):
    """What all kinds have."""

    metadata: Metadata


O = TypeVar("O", bound=Object)  # noqa: E741 (an object of the API)


class Condition(Struct, frozen=True, gc=False):
    type: str
    status: str


class PodStatus(Struct, frozen=True, rename="camel", gc=False):
    phase: str = ""
    pod_ip: str = msgspec.field(name="podIP", default="")
    conditions: list[Condition] | None = None


class ContainerPort(Struct, frozen=True, rename="camel", gc=False):
    container_port: int


class Container(Struct, frozen=True, gc=False):
    ports: list[ContainerPort] | None = None


class PodSpec(Struct, frozen=True, gc=False):
    containers: list[Container] | None = None


class Pod(Object, frozen=True, gc=False):
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


Port = Annotated[int, Meta(ge=1, le=65535)]


class TargetPort(Struct, frozen=True, gc=False):
    number: Port


class PoolSelector(Struct, frozen=True, rename="camel", gc=False):
    match_labels: Annotated[dict[str, str], Meta(min_length=1, max_length=64)]


class PoolSpec(Struct, frozen=True, rename="camel", gc=False):
    selector: PoolSelector
    target_ports: Annotated[list[TargetPort], Meta(min_length=1, max_length=8)]
    app_protocol: str = ""


class InferencePool(Object, frozen=True, gc=False):
    spec: PoolSpec


class PoolReference(Struct, frozen=True, gc=False):
    name: Annotated[str, Meta(min_length=1)]
    group: str = POOL_GROUP
    kind: str = "InferencePool"


class ObjectiveSpec(Struct, frozen=True, rename="camel", gc=False):
    pool_ref: PoolReference
    priority: Annotated[int, Meta(ge=-(2**31), lt=2**31)] | None = None


class InferenceObjective(Object, frozen=True, gc=False):
    spec: ObjectiveSpec


class ModelMatch(Struct, frozen=True, gc=False):
    value: Annotated[str, Meta(min_length=1)]
    type: Literal["Exact"] = "Exact"


class Match(Struct, frozen=True, gc=False):
    model: ModelMatch


class Target(Struct, frozen=True, rename="camel", gc=False):
    model_rewrite: Annotated[str, Meta(min_length=1)]
    weight: Annotated[int, Meta(ge=1, le=1_000_000)] | None = None


class Rule(Struct, frozen=True, gc=False):
    targets: Annotated[list[Target], Meta(min_length=1)]
    matches: list[Match] | None = None


class RewriteSpec(Struct, frozen=True, rename="camel", gc=False):
    pool_ref: PoolReference
    rules: list[Rule] | None = None


class InferenceModelRewrite(Object, frozen=True, gc=False):
    spec: RewriteSpec


class PageMetadata(Struct, frozen=True, rename="camel", gc=False):
    resource_version: str = ""
    token: str = msgspec.field(name="continue", default="")


class Page(Struct, Generic[O], frozen=True, gc=False):
    """A list, or the part of one that a token leads on from."""

    metadata: PageMetadata
    items: list[O] | None = None


class RawPage(Struct, frozen=True, gc=False):
    metadata: PageMetadata
    items: list[msgspec.Raw] | None = None


class Notice(Struct, Generic[O], frozen=True, gc=False):
    """A change of one object, as a watch tells it."""

    type: str
    """``ADDED``, ``MODIFIED`` or ``DELETED``."""
    object: O


class RawNotice(Struct, frozen=True, gc=False):
    type: str
    object: msgspec.Raw


class StatusDetails(Struct, frozen=True, rename="camel", gc=False):
    retry_after_seconds: float = 0.0


class Status(Struct, frozen=True, gc=False):
    """Why a request failed."""

    message: str = ""
    reason: str = ""
    code: int = 0
    details: StatusDetails | None = None


class Named(Struct, frozen=True, gc=False):
    """As much as is read of an object that breaks its schema, and of a bookmark."""

    metadata: Reference = Reference()


@final
@frozen(eq=False)
class Kind(Generic[O]):
    """A resource of the API, and how its objects are read."""

    group: str
    version: str
    plural: str
    wire: type[O]
    page: msgspec.json.Decoder[Page[O]] = field(init=False, repr=False)
    notice: msgspec.json.Decoder[Notice[O]] = field(init=False, repr=False)
    one: msgspec.json.Decoder[O] = field(init=False, repr=False)

    def __attrs_post_init__(self) -> None:
        wire = self.wire
        object.__setattr__(self, "page", msgspec.json.Decoder(Page[wire]))  # type: ignore[valid-type]
        object.__setattr__(self, "notice", msgspec.json.Decoder(Notice[wire]))  # type: ignore[valid-type]
        object.__setattr__(self, "one", msgspec.json.Decoder(wire))

    @property
    def resource(self) -> str:
        """``pods``, ``inferencepools.inference.networking.k8s.io``: as rights are written."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    def path(self, namespace: str) -> str:
        root = f"/apis/{self.group}" if self.group else "/api"
        return f"{root}/{self.version}/namespaces/{namespace}/{self.plural}"


PODS: Final = Kind("", "v1", "pods", Pod)
OBJECTIVES: Final = Kind(GROUP, "v1alpha2", "inferenceobjectives", InferenceObjective)
OLDER_OBJECTIVES: Final = Kind(OLDER_GROUP, "v1alpha2", "inferenceobjectives", InferenceObjective)
REWRITES: Final = Kind(GROUP, "v1alpha2", "inferencemodelrewrites", InferenceModelRewrite)
OLDER_REWRITES: Final = Kind(
    OLDER_GROUP, "v1alpha2", "inferencemodelrewrites", InferenceModelRewrite
)


def pools(group: str) -> Kind[InferencePool]:
    """InferencePools of *group*: one may have its own."""
    return Kind(group, "v1", "inferencepools", InferencePool)


@final
@frozen
class Selection(Generic[O]):
    """Some objects of one kind in one namespace."""

    kind: Kind[O]
    namespace: str
    labels: str = ""
    """A label selector; empty for all."""
    fields: str = ""
    """A field selector; empty for all."""

    def __str__(self) -> str:
        return f"{self.kind.resource} in namespace {self.namespace!r}"

    def parameters(self) -> dict[str, str]:
        """The part of a query that selects."""
        wanted = {"labelSelector": self.labels, "fieldSelector": self.fields}
        return {name: value for name, value in wanted.items() if value}


def label_selector(labels: Mapping[str, str]) -> str:
    """The selector for objects that have all of *labels*."""
    return ",".join(f"{name}={value}" for name, value in sorted(labels.items()))
