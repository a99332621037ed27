"""Filters on the endpoints' labels, and the label selectors of Kubernetes.

Labels say what an endpoint is, not how it fares: when none has the right ones, nothing can serve
the request, and the answer is 503 rather than 429.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, ClassVar, Final, final

from attrs import Attribute, define, field, frozen

from pointsman.kernel.keys import DataView
from pointsman.kernel.model import Endpoint
from pointsman.kernel.plugin import Mask
from pointsman.kernel.registry import Stability
from pointsman.kernel.structure import FieldError, not_blank, one_of

Labels = Mapping[str, str]

_NAME: Final = r"[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_DOMAIN_PART: Final = r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?"
_DOMAIN: Final = rf"(?=[^/]{{1,253}}/){_DOMAIN_PART}(?:\.{_DOMAIN_PART})*"
_KEY: Final = re.compile(rf"(?:{_DOMAIN}/)?{_NAME}")
_VALUE: Final = re.compile(rf"(?:{_NAME})?")


def _is_key(_: object, attribute: Attribute[Any], value: str) -> None:
    if not _KEY.fullmatch(value):
        raise FieldError(attribute.name, f"{value!r} is no label key")


def _are_values(_: object, attribute: Attribute[Any], values: Collection[str]) -> None:
    for value in values:
        if not _VALUE.fullmatch(value):
            raise FieldError(attribute.name, f"{value!r} is no label value")


def _are_labels(owner: object, attribute: Attribute[Any], labels: Labels) -> None:
    for key in labels:
        _is_key(owner, attribute, key)
    _are_values(owner, attribute, labels.values())


@final
@frozen(kw_only=True)
class Requirement:
    """What a selector says of one label."""

    key: str = field(validator=_is_key)
    operator: str = field(validator=one_of("In", "NotIn", "Exists", "DoesNotExist"))
    values: tuple[str, ...] = field(default=(), validator=_are_values)

    def __attrs_post_init__(self) -> None:
        if self.operator in ("In", "NotIn") and not self.values:
            raise ValueError(f"the operator {self.operator} needs values")
        if self.operator in ("Exists", "DoesNotExist") and self.values:
            raise ValueError(f"the operator {self.operator} takes no values")

    def fits(self, labels: Labels) -> bool:
        value = labels.get(self.key)
        match self.operator:
            case "In":
                return value in self.values
            case "NotIn":
                return value not in self.values
            case "Exists":
                return value is not None
            case _:
                return value is None


@final
@frozen(kw_only=True)
class LabelSelector:
    """A label selector as Kubernetes objects spell it; all that it says must hold."""

    match_labels: Labels = field(factory=dict[str, str], validator=_are_labels)
    match_expressions: tuple[Requirement, ...] = ()
    """``NotIn`` also fits where the label is missing."""

    def fits(self, labels: Labels) -> bool:
        for key, value in self.match_labels.items():
            if labels.get(key) != value:
                return False
        return all(requirement.fits(labels) for requirement in self.match_expressions)


@final
@define(eq=False)
class MaskByLabels:
    """Which of some endpoints have labels that fit; remembered while they are the same."""

    fits: Callable[[Labels], bool]
    _endpoints: Sequence[Endpoint] = field(default=(), init=False, repr=False)
    _mask: Mask = field(default=(), init=False, repr=False)

    def __call__(self, endpoints: Sequence[Endpoint]) -> Mask:
        if endpoints is self._endpoints:
            return self._mask
        mask = [self.fits(endpoint.labels) for endpoint in endpoints]
        if isinstance(endpoints, tuple):  # what cannot change needs no second look
            self._endpoints, self._mask = endpoints, mask
        return mask


@final
@define(eq=False)
class LabelSelectorFilter:
    """Keeps the endpoints that a Kubernetes label selector fits; an empty one fits all."""

    type_name: ClassVar = "label-selector-filter"
    aliases: ClassVar = {"by-label-selector": "write label-selector-filter"}
    stability: ClassVar = Stability.BETA
    empty_means_absent: ClassVar = True
    parameters: LabelSelector
    _mask: MaskByLabels = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._mask = MaskByLabels(self.parameters.fits)

    def keep(self, data: DataView, endpoints: Sequence[Endpoint]) -> Mask:
        return self._mask(endpoints)


@final
@frozen(kw_only=True)
class ByLabelParameters:
    label: str = field(validator=not_blank)
    valid_values: tuple[str, ...] = ()
    allows_no_label: bool = False
    """Whether endpoints without the label stay, too."""

    def fits(self, labels: Labels) -> bool:
        value = labels.get(self.label)
        return self.allows_no_label if value is None else value in self.valid_values


@final
@define(eq=False)
class ByLabel:
    """Keeps the endpoints whose *label* is one of *validValues*, or missing where that is allowed.

    A valid value of ``""`` is the empty label, not the missing one.
    """

    type_name: ClassVar = "by-label"
    # Its one name is the deprecated one.
    aliases: ClassVar = {"by-label": "write label-selector-filter"}
    stability: ClassVar = Stability.BETA
    empty_means_absent: ClassVar = True
    parameters: ByLabelParameters
    _mask: MaskByLabels = field(init=False)

    def __attrs_post_init__(self) -> None:
        if not self.parameters.valid_values and not self.parameters.allows_no_label:
            raise ValueError("validValues is empty and allowsNoLabel false: nothing could stay")
        self._mask = MaskByLabels(self.parameters.fits)

    def keep(self, data: DataView, endpoints: Sequence[Endpoint]) -> Mask:
        return self._mask(endpoints)


ROLE: Final = "llm-d.ai/role"
_EVERYTHING: Final = "encode-prefill-decode"


@define(eq=False)
class _RoleFilter:
    """Keeps the endpoints whose role is one of the class's; None is that of the unlabelled."""

    stability: ClassVar = Stability.BETA
    empty_means_absent: ClassVar = True
    roles: ClassVar[frozenset[str | None]]
    _mask: MaskByLabels = field(init=False)

    def __attrs_post_init__(self) -> None:
        roles = self.roles
        self._mask = MaskByLabels(lambda labels: labels.get(ROLE) in roles)

    def keep(self, data: DataView, endpoints: Sequence[Endpoint]) -> Mask:
        return self._mask(endpoints)


@final
@define(eq=False)
class DecodeFilter(_RoleFilter):
    """Keeps the endpoints that decode: by the label ``llm-d.ai/role``, or without that label."""

    type_name: ClassVar = "decode-filter"
    roles: ClassVar = frozenset({"decode", "prefill-decode", "both", _EVERYTHING, None})


@final
@define(eq=False)
class PrefillFilter(_RoleFilter):
    """Keeps the endpoints that prefill, by the label ``llm-d.ai/role``."""

    type_name: ClassVar = "prefill-filter"
    roles: ClassVar = frozenset(
        {"prefill", "encode-prefill", "prefill-decode", "both", _EVERYTHING}
    )


@final
@define(eq=False)
class EncodeFilter(_RoleFilter):
    """Keeps the endpoints that encode images and the like, by the label ``llm-d.ai/role``."""

    type_name: ClassVar = "encode-filter"
    roles: ClassVar = frozenset({"encode", "encode-prefill", _EVERYTHING})
