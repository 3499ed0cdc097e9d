from torch import Tensor

FIELDS: tuple[str, ...]
INSTRUCTION_SETS: tuple[str, ...]

def run(*arguments: object) -> tuple[int, int] | None: ...
def loss(
    dtype: int,
    instruction_set: int,
    value: Tensor,
    logits: Tensor,
    action: Tensor,
    advantage: Tensor,
    gradient: Tensor,
    rows: int,
    categories: int,
    scale_advantage: float,
    scale_bonus: float,
) -> int | None: ...
