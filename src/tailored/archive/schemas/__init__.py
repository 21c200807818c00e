"""Every class that a file may name, with its fields: the list that `load` and `save` go by.

Classes stand here by their names alone, and `tailored.persistence` knows which these are; a file is checked whole
before any of them is called.
"""

from ..schema import SCHEMAS
from ._learners import LEARNER, LEARNERS
from ._maps import maps
from ._models import MODEL
from ._prior import PRIOR
from ._tables import TABLES

#: What a file may be of.
WHOLE = (*LEARNERS, "Paused", "TaskRegressor")

SCHEMAS.update({**PRIOR, **maps(LEARNERS), **LEARNER, **MODEL, **TABLES})

__all__ = ["SCHEMAS", "WHOLE"]
