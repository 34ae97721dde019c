"""The BiLSTM with attention in torch."""

from __future__ import annotations

import torch
from torch import nn


class Network(nn.Module):
    """Logits from word vectors [N, L, D], zero behind each text's end, and the texts' lengths in words (at least 1)."""

    def __init__(self, dimension: int, hidden: int, dropout: float, classes: int) -> None:
        super().__init__()
        self.lstm = nn.LSTM(dimension, hidden, batch_first=True, bidirectional=True)
        self.attention = nn.Linear(2 * hidden, 2 * hidden)
        self.query = nn.Parameter(torch.empty(2 * hidden).uniform_(-0.1, 0.1))
        self.dropout = nn.Dropout(dropout)
        self.linear = nn.Linear(2 * hidden, classes)

    def forward(self, words: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.linear(self.dropout(self.features(self.dropout(words), lengths)))
        return logits

    def features(self, words: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        """Return the states, averaged with weights softmax(query . tanh(attention(state)))."""
        packed = nn.utils.rnn.pack_padded_sequence(words, lengths.cpu(), batch_first=True, enforce_sorted=False)
        states, _ = nn.utils.rnn.pad_packed_sequence(
            self.lstm(packed)[0], batch_first=True, total_length=words.shape[1]
        )
        score = torch.tanh(self.attention(states)) @ self.query
        outside = torch.arange(words.shape[1], device=words.device) >= lengths[:, None]
        weight = torch.softmax(score.masked_fill(outside, float("-inf")), dim=1)
        return torch.einsum("nl,nld->nd", weight, states)
