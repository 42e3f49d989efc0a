"""A GRU between batch normalizations, whose running statistics each seed has for itself."""

from torch import nn


class Normalized(nn.Module):
    def __init__(self, inputs, outputs, width):
        super().__init__()
        self.norm = nn.BatchNorm1d(inputs)
        self.rnn = nn.GRU(inputs, width, batch_first=True)
        self.head = nn.Linear(width, outputs)

    def forward(self, x):
        x = self.norm(x.transpose(1, 2)).transpose(1, 2)
        return self.head(self.rnn(x)[0])
