"""What models have in common whose raw recurrent weights are a matrix without constraint."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from memsweep.models.base import Group, Part, Role
from memsweep.models.matrix.base import MatrixRNN
from memsweep.models.matrix.config import FreeConfig
from memsweep.models.matrix.initial import free_matrix


class FreeMatrixRNN(MatrixRNN):
    """The recurrent matrix is, or is made of, ``recurrent_weight``."""

    Config: ClassVar[type] = FreeConfig
    group: ClassVar[Group] = Group.REST
    """Whose settings the optimizer takes for that weight."""

    @classmethod
    def recurrent_roles(cls, config: FreeConfig) -> dict[str, Role]:
        return {"recurrent_weight": Role(Part.RECURRENT, ("width", "width"), group=cls.group)}

    @classmethod
    def recurrent_initial(cls, config: FreeConfig, rng: np.random.Generator) -> dict[str, np.ndarray]:
        return {"recurrent_weight": free_matrix(config.initialization, config.width, rng)}
