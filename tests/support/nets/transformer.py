"""A causal transformer as a user writes it: torch's own layers and a table of positions that ends at the horizon."""

import torch
from torch import nn


class Transformer(nn.Module):
    def __init__(self, inputs, outputs, horizon, width, layers=2, heads=2):
        super().__init__()
        self.embed = nn.Linear(inputs, width)
        self.positions = nn.Parameter(0.02 * torch.randn(horizon, width))
        block = nn.TransformerEncoderLayer(width, heads, 2 * width, dropout=0.0, batch_first=True, norm_first=True)
        self.blocks = nn.TransformerEncoder(block, layers, enable_nested_tensor=False)
        self.head = nn.Linear(width, outputs)

    def forward(self, x):
        steps = x.shape[1]
        if steps > len(self.positions):
            raise ValueError(f"{steps} steps, and positions for {len(self.positions)}")
        mask = nn.Transformer.generate_square_subsequent_mask(steps, device=x.device, dtype=x.dtype)
        return self.head(self.blocks(self.embed(x) + self.positions[:steps], mask=mask, is_causal=True))
