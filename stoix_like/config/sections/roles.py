"""What a leaf means to a run: may it change on resume, does it define the task, does it affect learning.

Every leaf states its roles where it is declared. Lists of leaves are made from them, so a new leaf joins its lists.
"""

from __future__ import annotations

import dataclasses
import enum
import functools

from stoix_like.config.checks.access import section_types


class Role(enum.Flag):
    """The roles of a leaf. A leaf can have several."""

    NONE = 0
    FIXED = enum.auto()  # decides shapes or meaning of the state: it cannot change when a run is resumed
    LEARNING = enum.auto()  # affects what is learned: runs that differ in it are different experiments
    ENVIRONMENT = enum.auto()  # an argument with which the environment is made
    TASK = enum.auto()  # defines the task or its scores: scores of runs that differ in it are not compared
    PACE = enum.auto()  # decides how much experience an update or the whole run has
    SEED = enum.auto()  # selects seeds: runs that differ in it repeat one experiment
    SCORING = enum.auto()  # when and how policies are evaluated
    MACHINE = enum.auto()  # devices, files and reports: it changes neither learning nor scores
    FOLDER = enum.auto()  # names the run folder, which may be moved
    PATH = enum.auto()  # where something was read, which may be moved since
    PROCESS = enum.auto()  # how one process is started: it is not part of the run


@functools.cache
def leaf_roles(config_type: type) -> dict[str, Role]:
    """{leaf: its roles}, in the order of the sections."""
    fields = [field for kind in section_types(config_type).values() for field in dataclasses.fields(kind)]
    return {field.name: field.metadata.get("roles", Role.NONE) for field in fields}


def leaves_with(config_type: type, roles: Role) -> frozenset[str]:
    """The leaves that have at least one of these roles."""
    return frozenset(name for name, own in leaf_roles(config_type).items() if own & roles)
