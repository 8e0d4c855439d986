"""The interface version that plugins declare, and the rule by which the core accepts one."""

from __future__ import annotations

INTERFACE = 1  # raised when a protocol or hook changes; docs/plugin-api.md lists what each number means
OLDEST_BUILT_FOR = max(1, INTERFACE - 1)  # plugins written for the version before still load


def refusal(built_for: object, minimum: object) -> str | None:
    """Why a plugin with these declarations cannot be used, as one sentence; None when it can.

    `built_for` is the version that the plugin was written and tested for, `minimum` the oldest core that it works with.
    """
    for name, value in (("built_for", built_for), ("minimum", minimum)):
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            return f"its {name} is {value!r}, which is not an interface version: give a whole number of at least 1"
    assert isinstance(built_for, int)
    assert isinstance(minimum, int)
    if minimum > built_for:
        return f"its minimum = {minimum} is above its built_for = {built_for}: declare minimum <= built_for"
    if minimum > INTERFACE:
        return f"it needs interface {minimum} and this core has {INTERFACE}: update deepinfer-core"
    if built_for < OLDEST_BUILT_FOR:
        supported = f"{OLDEST_BUILT_FOR} to {INTERFACE}" if OLDEST_BUILT_FOR < INTERFACE else f"{INTERFACE}"
        return f"it was built for interface {built_for} and this core supports {supported}: update the plugin"
    return None
