"""torch's own recurrent layers with a readout, and a model of tokens, as a user writes them."""

from torch import nn


class Recurrent(nn.Module):
    """An ``nn.GRU``, ``nn.LSTM`` or ``nn.RNN``, and a linear readout."""

    def __init__(self, inputs, outputs, width, cell=nn.GRU, layers=1, dropout=0.0):
        super().__init__()
        self.rnn = cell(inputs, width, layers, dropout=dropout, batch_first=True)
        self.head = nn.Linear(width, outputs)

    def forward(self, x):
        return self.head(self.rnn(x)[0])


def rnn(inputs, outputs, width, **options):
    return Recurrent(inputs, outputs, width, nn.RNN, **options)


def gru(inputs, outputs, width, **options):
    return Recurrent(inputs, outputs, width, nn.GRU, **options)


def lstm(inputs, outputs, width, **options):
    return Recurrent(inputs, outputs, width, nn.LSTM, **options)


class TokenGRU(nn.Module):
    """Reads ids: an embedding, an ``nn.GRU``, and a readout of the states."""

    def __init__(self, inputs, outputs, width):
        super().__init__()
        self.embed = nn.Embedding(inputs, width)
        self.rnn = nn.GRU(width, width, batch_first=True)
        self.head = nn.Linear(width, outputs)

    def forward(self, ids):
        return self.head(self.rnn(self.embed(ids))[0])
