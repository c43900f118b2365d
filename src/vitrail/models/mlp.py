"""The two-layer perceptron of every encoder block."""

from jaxtyping import Float
from torch import Tensor, nn

from vitrail.config.vit import Gelu


class Mlp(nn.Module):
    """Dense, GELU, dropout, dense, dropout: the MLP of equation (3), with dropout in the places of B.1."""

    def __init__(self, width: int, hidden_width: int, gelu: Gelu = "tanh", dropout: float = 0.0) -> None:
        super().__init__()
        self.expand = nn.Linear(width, hidden_width)
        self.gelu = nn.GELU(approximate="tanh" if gelu == "tanh" else "none")
        self.contract = nn.Linear(hidden_width, width)
        self.dropout = nn.Dropout(dropout)
        for layer in (self.expand, self.contract):
            nn.init.xavier_uniform_(layer.weight)
            nn.init.normal_(layer.bias, std=1e-6)

    def forward(self, z: Float[Tensor, "batch tokens dim"]) -> Float[Tensor, "batch tokens dim"]:
        return self.dropout(self.contract(self.dropout(self.gelu(self.expand(z)))))
