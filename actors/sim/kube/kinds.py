"""Which kinds of objects the server has, and how each behaves: rows of a table, not classes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Final, final

from attrs import define, field, frozen

from .objects import Object

if TYPE_CHECKING:
    from .schema import Schema

GroupResource = tuple[str, str]
"""API group and plural name: what the versions of a kind share, and under what it is stored."""

ALL_VERBS: Final = (
    "create",
    "delete",
    "deletecollection",
    "get",
    "list",
    "patch",
    "update",
    "watch",
)


@frozen(kw_only=True)
class Kind:
    """One kind in one version."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True
    short_names: tuple[str, ...] = ()
    status: bool = False
    """Has a status that is written through a path of its own."""
    verbs: tuple[str, ...] = ALL_VERBS
    fields: tuple[str, ...] = ()
    """What field selectors may ask for, beside the name and the namespace."""
    returns_deleted: bool = False
    """Deleting answers with the object and not with a ``Status``."""
    schema: Schema | None = None
    """Custom kinds have one."""
    columns: tuple[Object, ...] = ()
    """What a definition wants to be printed of its objects, beside the name."""

    @property
    def custom(self) -> bool:
        return self.schema is not None

    @property
    def is_review(self) -> bool:
        """Whether its objects are questions, which are answered and not kept."""
        return self.verbs == ("create",)

    @property
    def counts_generations(self) -> bool:
        """Whether ``metadata.generation`` goes up with each change of what is wanted."""
        return self.custom or self.group in ("apps", "policy")

    @property
    def needs_version(self) -> bool:
        """Whether an update must say which version it is based on."""
        return self.custom or self.plural == "leases"

    @property
    def resource(self) -> GroupResource:
        return self.group, self.plural

    @property
    def qualified(self) -> str:
        """The plural with its group, as messages have it."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    def own(self, obj: Object) -> Object:
        """*obj* in this version."""
        if obj["apiVersion"] == self.api_version:
            return obj
        return {**obj, "apiVersion": self.api_version}

    @property
    def selectable(self) -> frozenset[str]:
        own = {"metadata.namespace"} if self.namespaced else set[str]()
        return frozenset({"metadata.name", *own, *self.fields})


_CORE: Final = partial(Kind, group="", version="v1")
_APPS: Final = partial(Kind, group="apps", version="v1", status=True)
_RBAC: Final = partial(Kind, group="rbac.authorization.k8s.io", version="v1")
_IDENTITY: Final = partial(
    Kind, group="authentication.k8s.io", version="v1", namespaced=False, verbs=("create",)
)
_ACCESS: Final = partial(Kind, group="authorization.k8s.io", version="v1", verbs=("create",))

_EVENT_FIELDS: Final = (
    "involvedObject.kind",
    "involvedObject.namespace",
    "involvedObject.name",
    "involvedObject.uid",
    "reason",
    "type",
)
PODS: Final = _CORE(
    plural="pods",
    kind="Pod",
    short_names=("po",),
    status=True,
    fields=("spec.nodeName", "status.phase", "status.podIP", "spec.restartPolicy"),
    returns_deleted=True,
)
NAMESPACES: Final = _CORE(
    plural="namespaces",
    kind="Namespace",
    short_names=("ns",),
    namespaced=False,
    status=True,
    fields=("status.phase",),
)
ROLES: Final = _RBAC(plural="roles", kind="Role")
ROLE_BINDINGS: Final = _RBAC(plural="rolebindings", kind="RoleBinding")
CLUSTER_ROLES: Final = _RBAC(plural="clusterroles", kind="ClusterRole", namespaced=False)
CLUSTER_ROLE_BINDINGS: Final = _RBAC(
    plural="clusterrolebindings", kind="ClusterRoleBinding", namespaced=False
)
DEFINITIONS: Final = Kind(
    group="apiextensions.k8s.io",
    version="v1",
    plural="customresourcedefinitions",
    kind="CustomResourceDefinition",
    short_names=("crd", "crds"),
    namespaced=False,
    status=True,
)
TOKEN_REVIEWS: Final = _IDENTITY(plural="tokenreviews", kind="TokenReview")
SELF_REVIEWS: Final = _IDENTITY(plural="selfsubjectreviews", kind="SelfSubjectReview")
ACCESS_REVIEWS: Final = _ACCESS(
    plural="subjectaccessreviews", kind="SubjectAccessReview", namespaced=False
)
SELF_ACCESS_REVIEWS: Final = _ACCESS(
    plural="selfsubjectaccessreviews", kind="SelfSubjectAccessReview", namespaced=False
)
LOCAL_ACCESS_REVIEWS: Final = _ACCESS(
    plural="localsubjectaccessreviews", kind="LocalSubjectAccessReview"
)

BUILT_IN: Final = (
    PODS,
    NAMESPACES,
    _CORE(plural="events", kind="Event", short_names=("ev",), fields=_EVENT_FIELDS),
    _CORE(
        plural="services",
        kind="Service",
        short_names=("svc",),
        status=True,
        returns_deleted=True,
    ),
    _CORE(plural="endpoints", kind="Endpoints", short_names=("ep",)),
    _CORE(plural="configmaps", kind="ConfigMap", short_names=("cm",)),
    _CORE(plural="secrets", kind="Secret", fields=("type",)),
    _CORE(
        plural="serviceaccounts", kind="ServiceAccount", short_names=("sa",), returns_deleted=True
    ),
    _CORE(
        plural="nodes",
        kind="Node",
        short_names=("no",),
        namespaced=False,
        status=True,
        fields=("spec.unschedulable",),
    ),
    _APPS(plural="deployments", kind="Deployment", short_names=("deploy",)),
    _APPS(plural="replicasets", kind="ReplicaSet", short_names=("rs",)),
    _APPS(plural="statefulsets", kind="StatefulSet", short_names=("sts",)),
    _APPS(plural="daemonsets", kind="DaemonSet", short_names=("ds",)),
    Kind(
        group="policy",
        version="v1",
        plural="poddisruptionbudgets",
        kind="PodDisruptionBudget",
        short_names=("pdb",),
        status=True,
    ),
    Kind(group="coordination.k8s.io", version="v1", plural="leases", kind="Lease"),
    ROLES,
    ROLE_BINDINGS,
    CLUSTER_ROLES,
    CLUSTER_ROLE_BINDINGS,
    DEFINITIONS,
    TOKEN_REVIEWS,
    SELF_REVIEWS,
    ACCESS_REVIEWS,
    SELF_ACCESS_REVIEWS,
    LOCAL_ACCESS_REVIEWS,
)


@final
@define(eq=False)
class Kinds:
    """The kinds that are served now: those built in and those that definitions add."""

    _served: dict[tuple[str, str, str], Kind] = field(
        factory=lambda: {(kind.group, kind.version, kind.plural): kind for kind in BUILT_IN}
    )

    def __iter__(self) -> Iterator[Kind]:
        return iter(self._served.values())

    def get(self, group: str, version: str, plural: str) -> Kind | None:
        return self._served.get((group, version, plural))

    def of_object(self, api_version: str, kind: str) -> Kind | None:
        """The kind of an object that calls itself so."""
        return next((k for k in self if (k.api_version, k.kind) == (api_version, kind)), None)

    def named(self, plural: str) -> Kind | None:
        """The kind of that plural, with its group behind a dot where the plural is not enough."""
        return next((kind for kind in self if plural in (kind.qualified, kind.plural)), None)

    def replace(self, resource: GroupResource, kinds: Iterable[Kind]) -> None:
        """Serve *kinds* as the versions of *resource*, in place of those it had."""
        for key in [key for key, kind in self._served.items() if kind.resource == resource]:
            del self._served[key]
        for kind in kinds:
            self._served[kind.group, kind.version, kind.plural] = kind
