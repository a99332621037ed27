"""Which models endpoints serve, from what they list at ``/v1/models``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Final, final

import msgspec
from attrs import define, field, frozen

from pointsman.kernel.keys import Key, Keys, keys
from pointsman.kernel.registry import Stability
from pointsman.kernel.structure import Duration, at_least, not_blank

from .keys import SERVED_MODELS, ServedModel
from .sources import MetricsSourceParameters

SELDOM: Final = Duration(10.0)


@final
@frozen(kw_only=True)
class ModelsSourceParameters(MetricsSourceParameters):
    tells_load: ClassVar = False
    path: str = field(default="/v1/models", validator=not_blank)
    interval: Duration | None = field(default=SELDOM, validator=at_least(0.05))
    """Seconds. Not as often as metrics, unlike in the reference: models seldom change."""


@final
@define(eq=False)
class ModelsSource:
    """Fetches the list of models from each endpoint, while some plugin wants to know them."""

    type_name: ClassVar = "models-data-source"
    stability: ClassVar = Stability.BETA
    parameters: ModelsSourceParameters

    def source(self) -> MetricsSourceParameters:
        return self.parameters


class _Model(msgspec.Struct):
    id: str
    parent: str | None = None


class _Models(msgspec.Struct):
    data: list[_Model]


_read: Final = msgspec.json.Decoder(_Models).decode


@final
@define(eq=False)
class ModelsExtractor:
    """Reads the models and adapters that an endpoint lists, in its order.

    A text that is no such list says nothing; it is not taken for an empty one.
    """

    type_name: ClassVar = "models-data-extractor"
    stability: ClassVar = Stability.BETA
    produces: ClassVar = keys(SERVED_MODELS)

    def extractor(
        self, labels: Mapping[str, str], wanted: Keys
    ) -> Callable[[bytes], Mapping[Key, Any]]:
        return _extract if SERVED_MODELS in wanted else lambda text: {}


def _extract(text: bytes) -> Mapping[Key, Any]:
    try:
        listed = _read(text).data
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return {SERVED_MODELS: None}
    return {SERVED_MODELS: tuple(ServedModel(one.id, one.parent or "") for one in listed)}
